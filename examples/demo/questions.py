"""The conversation: ten questions about whatever is in the folder, and what a right answer to each holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from examples.demo.folder import MAX_LINE_CHARS
from examples.demo.truth import File, Survey

__all__ = ["Expected", "Ground", "Question", "compose", "holds"]

Ground: TypeAlias = dict[str, str]
"""What earlier answers have settled, for the questions that build on them."""

_MAX_PATHS_ASKED = 12


@dataclass(frozen=True)
class Expected:
    """What an answer must hold, and what it settles."""

    facts: Sequence[str]
    settles: Ground = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Question:
    """A question, and its right answer in a folder as it is, after what was settled before."""

    text: str
    expect: Callable[[Survey, Ground], Expected]


def compose(survey: Survey) -> list[Question]:
    """Ten questions for a folder with at least one text file. The later ones build on the earlier ones."""
    suffix = survey.main_suffix()
    kind = f"`{suffix}` files" if suffix else "files"
    one, two, three, four = survey.telling_words(4)
    line = _telling_line(survey.ending(suffix)[0])

    def count(now: Survey, _: Ground) -> Expected:
        number = str(len(now.ending(suffix)))
        return Expected([number, str(len(now.files))], {"count": number})

    def largest(now: Survey, _: Ground) -> Expected:
        file = now.ending(suffix)[0]
        return Expected([file.path, str(file.size_bytes)], {"largest": file.path})

    def line_of_it(now: Survey, ground: Ground) -> Expected:
        text = _line(now.get(ground["largest"]), line)
        return Expected([text], {"line": text})

    def words(now: Survey, _: Ground) -> Expected:
        found = [now.with_word(word) for word in (one, two, three)]
        numbers = [str(len(files)) for files in found]
        paths = [file.path for files in found for file in files[:_MAX_PATHS_ASKED]]
        return Expected([*numbers, *paths], {"mentions": numbers[0]})

    def both(now: Survey, _: Ground) -> Expected:
        shared = [file.path for file in now.with_word(one) if two in file.words]
        return Expected([str(len(shared)), *shared[:_MAX_PATHS_ASKED]])

    def lengths(now: Survey, _: Ground) -> Expected:
        return Expected([fact for file in now.ending(suffix)[:3] for fact in (file.path, _length(file))])

    def first_place(now: Survey, _: Ground) -> Expected:
        files = now.with_word(four)
        if not files:
            return Expected(["nowhere"])
        at = next(number for number, text in enumerate(files[0].lines, 1) if four in re.findall(r"\w+", text))
        return Expected([files[0].path, str(at), _line(files[0], at + 1)])

    def total(_: Survey, ground: Ground) -> Expected:
        return Expected([str(int(ground["count"]) + int(ground["mentions"]))])

    def outside(_: Survey, __: Ground) -> Expected:
        return Expected(["refused"])

    def recap(_: Survey, ground: Ground) -> Expected:
        return Expected([ground["count"], ground["largest"], ground["line"]])

    return [
        Question(f"How many {kind} are in this folder, and how many files of any kind?", count),
        Question(f"Which of the {kind} is the largest, and how many bytes does it have?", largest),
        Question(f"What does line {line} of that file say?", line_of_it),
        Question(f"How many files mention the word “{one}”, how many “{two}”, how many “{three}”, and which?", words),
        Question(f"Which of the files that mention “{one}” mention “{two}” as well, and how many are they?", both),
        Question(f"How many lines does each of the three largest {kind} have?", lengths),
        Question(f"Where is the word “{four}” mentioned first, and what does the line after it say?", first_place),
        Question(f"Add the number of {kind} to the number of files that mention “{one}”. What is the sum?", total),
        Question("Try to read `../outside.txt`. Is it shown or refused?", outside),
        Question(f"Sum up: how many {kind} are there, which is the largest, what does its line {line} say?", recap),
    ]


def holds(answer: str, expected: Expected) -> list[str]:
    """The facts that an answer lacks; none for a right one. White space does not count, nor commas in numbers."""
    text = " ".join(re.sub(r"(?<=\d),(?=\d{3}\b)", "", answer).split())
    raw = " ".join(answer.split())
    missing: list[str] = []
    for fact in expected.facts:
        whole = re.compile(rf"(?<![\w.]){re.escape(fact)}(?!\w)") if fact.isdecimal() else re.compile(re.escape(fact))
        if not whole.search(text) and not whole.search(raw):
            missing.append(fact)
    return missing


def _telling_line(file: File) -> int:
    """The number of a line that says something, from the middle of the file on; 1 where none does."""
    good = [number for number, text in enumerate(file.lines, 1) if 15 <= len(text.strip()) <= 100]
    said = [number for number, text in enumerate(file.lines, 1) if text.strip()]
    return next((number for number in good if number >= len(file.lines) // 2), [*good, *said, 1][0])


def _line(file: File, number: int) -> str:
    if file.text is None:
        return file.reason
    if number > len(file.lines):
        return "no such line"
    return " ".join(file.lines[number - 1].rstrip("\r")[:MAX_LINE_CHARS].split()) or "empty line"


def _length(file: File) -> str:
    return file.reason if file.text is None else str(len(file.lines))
