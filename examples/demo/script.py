"""The offline model: a script that understands the demo's questions, asks its tools, and answers from what they say.

It knows nothing of the folder. A question that builds on an earlier one is answered from the earlier tool results in
the history that it is sent: what Laneway lost of it would be missing from the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from examples.demo.folder import Excerpt, FileSize, Found, Listing
from examples.demo.ledger import Gate, Gates

__all__ = ["Call", "Conversation", "Reply", "reply_to", "spoken"]

_WORD_SECONDS = 0.008
_MAX_PATHS_NAMED = 12


@dataclass(frozen=True)
class Call:
    """A tool call that the script makes."""

    tool: str
    arguments: Mapping[str, object]


@dataclass
class _Exchange:
    """A question, the tool calls made for it with what they came to, and the answer."""

    question: str
    calls: list[tuple[Call, Any]] = field(default_factory=list[tuple[Call, Any]])
    answer: str = ""


Reply: TypeAlias = str | Sequence[Call]
"""An answer, or the tool calls that are needed first."""
_Skill: TypeAlias = Callable[["Conversation", re.Match[str]], Reply]


class Conversation:
    """The conversation as the model is sent it, whatever framework's messages it was in."""

    def __init__(self) -> None:
        self.exchanges: list[_Exchange] = []
        self._open: dict[str, Call] = {}

    def asked(self, question: str) -> None:
        """The user asks."""
        self.exchanges.append(_Exchange(question))

    def called(self, call_id: str, tool: str, arguments: Mapping[str, object]) -> None:
        """The model calls a tool."""
        self._open[call_id] = Call(tool, arguments)

    def returned(self, call_id: str, result: Any) -> None:
        """A call came to a result; text where the tool refused it."""
        self._now.calls.append((self._open[call_id], result))

    def answered(self, text: str) -> None:
        """The model speaks."""
        self._now.answer += text

    @property
    def _now(self) -> _Exchange:
        return self.exchanges[-1]

    @property
    def question(self) -> str:
        return self._now.question

    @property
    def results(self) -> list[Any]:
        """What the calls for the present question came to, in order."""
        return [result for _, result in self._now.calls]

    def _find(self, tool: str, argument: str, value: str) -> Any:
        for exchange in reversed(self.exchanges):
            for call, result in exchange.calls:
                if call.tool == tool and call.arguments.get(argument) == value:
                    return result
        raise LookupError(f"the history has no {tool} with {argument}={value!r}")

    def listing(self, ending: str) -> Listing:
        """The files of that ending, the largest first, as a tool listed them earlier."""
        return cast("Listing", self._find("list_files", "ending", ending))

    def found(self, word: str) -> Found:
        """Where the word stands, as a tool found it earlier."""
        return cast("Found", self._find("search_word", "word", word))

    def asked_before(self, pattern: re.Pattern[str]) -> str:
        """The answer to the question of that pattern."""
        return next(exchange.answer for exchange in self.exchanges if pattern.fullmatch(exchange.question))


_KIND = r"(?:`(?P<ending>\.\w+)` )?files"


_LARGEST = re.compile(rf"The largest of the {_KIND} is `(?P<path>.+)`: it has \d+ bytes\.")


def _ending(match: re.Match[str]) -> str:
    return match["ending"] or ""


def _kind(match: re.Match[str]) -> str:
    return f"`{match['ending']}` files" if match["ending"] else "files"


def _count(memory: Conversation, match: re.Match[str]) -> Reply:
    if not memory.results:
        endings = dict.fromkeys([_ending(match), ""])
        return [Call("list_files", {"ending": ending, "order": "largest"}) for ending in endings]
    some, every = memory.listing(_ending(match)), memory.listing("")
    return f"There are {some['total']} {_kind(match)} in this folder, and {every['total']} files of any kind."


def _largest(memory: Conversation, match: re.Match[str]) -> Reply:
    file = memory.listing(_ending(match))["files"][0]
    return f"The largest of the {_kind(match)} is `{file['path']}`: it has {file['size_bytes']} bytes."


def _line(memory: Conversation, match: re.Match[str]) -> Reply:
    number = int(match["line"])
    if not memory.results:
        # "That file" is the one that the answer before this one names.
        named = _LARGEST.fullmatch(memory.exchanges[-2].answer)
        assert named is not None
        return [Call("read_lines", {"path": named["path"], "first_line": number, "count": 1})]
    return _said(memory.results[0], number)


def _words(memory: Conversation, match: re.Match[str]) -> Reply:
    if not memory.results:
        return [Call("search_word", {"word": word}) for word in match.group("one", "two", "three")]
    return "\n".join(
        f"“{found['word']}” is mentioned in {found['total']} files{_named(found['paths'])}."
        for found in cast("list[Found]", memory.results)
    )


def _both(memory: Conversation, match: re.Match[str]) -> Reply:
    second = set(memory.found(match["two"])["paths"])
    shared = [path for path in memory.found(match["one"])["paths"] if path in second]
    return f"{len(shared)} of them mention both words{_named(shared)}."


def _lengths(memory: Conversation, match: re.Match[str]) -> Reply:
    files: list[FileSize] = memory.listing(_ending(match))["files"][:3]
    if not memory.results:
        return [Call("read_lines", {"path": file["path"], "first_line": 1, "count": 1}) for file in files]
    return "\n".join(
        f"`{file['path']}`: {result}" if isinstance(result, str) else f"`{file['path']}` has {_lines(result)} lines."
        for file, result in zip(files, memory.results, strict=True)
    )


def _first_place(memory: Conversation, match: re.Match[str]) -> Reply:
    word = match["one"]
    if not memory.results:
        return [Call("search_word", {"word": word})]
    found = cast("Found", memory.results[0])
    if found["first_line"] is None:
        return f"“{word}” is mentioned nowhere in this folder."
    after = found["first_line"] + 1
    if len(memory.results) == 1:
        return [Call("read_lines", {"path": found["first_path"], "first_line": after, "count": 1})]
    place = f"“{word}” is mentioned first in `{found['first_path']}`, line {found['first_line']}."
    return f"{place} {_said(memory.results[1], after)}"


def _sum(memory: Conversation, match: re.Match[str]) -> Reply:
    files, mentions = memory.listing(_ending(match))["total"], memory.found(match["one"])["total"]
    return f"{files} and {mentions} make {files + mentions}."


def _outside(memory: Conversation, match: re.Match[str]) -> Reply:
    if not memory.results:
        return [Call("read_lines", {"path": match["path"], "first_line": 1, "count": 5})]
    return str(memory.results[0])


def _recap(memory: Conversation, match: re.Match[str]) -> Reply:
    return " ".join(memory.asked_before(pattern) for pattern, _ in _SKILLS[:3])


_SKILLS: Sequence[tuple[re.Pattern[str], _Skill]] = [
    (re.compile(pattern), skill)
    for pattern, skill in [
        (rf"How many {_KIND} are in this folder, .*", _count),
        (rf"Which of the {_KIND} is the largest, .*", _largest),
        (r"What does line (?P<line>\d+) of that file say\?", _line),
        (r"How many files mention .*“(?P<one>\w+)”.*“(?P<two>\w+)”.*“(?P<three>\w+)”, .*", _words),
        (r"Which of the files that mention “(?P<one>\w+)” mention “(?P<two>\w+)” as well, .*", _both),
        (rf"How many lines does each of the three largest {_KIND} have\?", _lengths),
        (r"Where is the word “(?P<one>\w+)” mentioned first, .*", _first_place),
        (rf"Add the number of {_KIND} to the number of files that mention “(?P<one>\w+)”\. .*", _sum),
        (r"Try to read `(?P<path>[^`]+)`\. .*", _outside),
        (r"Sum up: .*", _recap),
    ]
]


def _named(paths: Sequence[str]) -> str:
    names = ", ".join(f"`{path}`" for path in paths[:_MAX_PATHS_NAMED])
    return f": {names}" if names else ""


def _lines(excerpt: Excerpt) -> int:
    return excerpt["total_lines"]


def _said(result: Excerpt | str, number: int) -> str:
    if isinstance(result, str):
        return f"That cannot be told: {result}."
    if not result["lines"]:
        return f"There is no such line: the file has {result['total_lines']} lines."
    text = result["lines"][0]
    return f"Line {number} says: {text}" if text.strip() else f"Line {number} is an empty line."


def reply_to(conversation: Conversation) -> Reply:
    """What the script says to a conversation that ends in a question or in tool results."""
    for pattern, skill in _SKILLS:
        if (match := pattern.fullmatch(conversation.question)) is not None:
            return skill(conversation, match)
    return "The script has no answer to that question: set LANEWAY_DEMO_MODEL for a model that does."


def _pieces(text: str) -> Iterator[str]:
    yield from re.findall(r"\s*\S+\s*$|\s*\S+", text)


async def spoken(text: str, gates: Gates) -> AsyncIterator[str]:
    """An answer's text, word by word; it comes to its gate in the middle."""
    pieces = list(_pieces(text))
    for index, piece in enumerate(pieces):
        if index == len(pieces) // 2:
            await gates.hold(Gate.REQUEST)
        await asyncio.sleep(_WORD_SECONDS)
        yield piece
