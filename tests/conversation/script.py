"""What is said: by the user, turn by turn, and by a model that answers from what it is sent alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tests.support.provider import ProviderRequest, ToolCall, answer, call

TURNS = 300
LIMIT_TOKENS = 8_000
"""The model's context, as its provider counts: a request over it is refused."""

PLANTED_EVERY = 5
LOOKED_UP_EVERY = 3
READ_AT = 270
"""The turn in which the user has a whole book read, of an agent that can: a tool loop that does not fit the context."""

FIRST_PAGE, PAGES = 1001, 36
_FACT = re.compile(r"FACT-\d{3}=[A-Z]{4}")
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


def fact(number: int) -> str:
    """The fact that is planted in a turn."""
    word, rest = "", 7919 * (number + 1)
    for _ in range(4):
        rest, place = divmod(rest * 31 + 17, len(_LETTERS))
        word += _LETTERS[place]
    return f"FACT-{number:03d}={word}"


BOOK_FACT = fact(FIRST_PAGE - 2)


def facts_in(texts: Iterable[str]) -> set[str]:
    """The facts that some texts hold."""
    return {found for text in texts for found in _FACT.findall(text)}


def planted(start: int, end: int) -> set[str]:
    """The facts that the user has told in these turns."""
    return {fact(n) for n in range(start, end) if n % PLANTED_EVERY == 0}


def prompt_of(number: int, *, reads: bool) -> str:
    """What the user says in a turn."""
    told = f" Remember {fact(number)}." if number % PLANTED_EVERY == 0 else ""
    if number == TURNS - 1:
        return f"turn {number}: say everything that you know."
    if reads and number == READ_AT:
        return f"turn {number}: read the whole book.{told}"
    if number % LOOKED_UP_EVERY == 0:
        return f"turn {number}: look up the page.{told}"
    return f"turn {number}: and what do you make of it, now that you have had the time?{told}"


def page(number: int) -> str:
    """What the tool returns. The first page of the book holds a fact of its own."""
    first = f" It says {BOOK_FACT}." if number == FIRST_PAGE else ""
    return f"Page {number}.{first} " + "It was a dark and stormy night, and the rain fell in torrents. " * 9


def model(request: ProviderRequest) -> Any:
    """Answers from what it is sent alone: a summary holds every fact that it is shown, the last answer as well."""
    facts = " ".join(sorted(facts_in(entry.text for entry in request.transcript)))
    if "your summary will stand in its place" in request.prompt:
        return f"Known so far: {facts}"
    number, wish = re.findall(r"turn (\d+): (look up|read|say)?", request.prompt)[-1]
    if wish == "look up" and request.step == 0:
        return answer(call("look_up", {"page": int(number) % 90}))
    if wish == "read" and (following := _read_on(request)) is not None:
        return answer(following)
    if wish in ("say", "read"):
        return f"I know {facts}"
    return f"About turn {number} I would say that it is much as it was before, and that there is little to add to it."


def _read_on(request: ProviderRequest) -> ToolCall | None:
    """Page after page of the book; then, what was archived of them first; then nothing more."""
    calls = [entry for entry in request.transcript if entry.role == "call"]
    if calls and calls[-1].name == "read_archived":
        return None
    pages = [json.loads(entry.text)["page"] for entry in calls]
    last = max((one for one in pages if one >= FIRST_PAGE), default=FIRST_PAGE - 1)
    if last < FIRST_PAGE + PAGES - 1:
        return call("look_up", {"page": last + 1})
    reference = re.search(r"\[Archive (ar-\w+):", request.prompt)
    return call("read_archived", {"reference": reference[1]}) if reference else None
