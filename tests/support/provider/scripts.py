"""Scripts: what decides the answers. A script is a function of the request; these make common ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from tests.support.provider.answers import Answerable
from tests.support.provider.transcript import ProviderRequest

Script: TypeAlias = Callable[[ProviderRequest], Answerable | Awaitable[Answerable]]


def always(value: Answerable) -> Script:
    """The same answer to every request."""
    return lambda request: value


def in_order(*values: Answerable) -> Script:
    """One answer after the other, whoever asks. A retried request gets the next one."""
    left = list(values)

    def script(request: ProviderRequest) -> Answerable:
        if not left:
            raise AssertionError(f"request {request.index} came after the last of {len(values)} scripted answers")
        return left.pop(0)

    return script


def by_step(*turns: Sequence[Answerable]) -> Script:
    """An answer for each step of each turn, found by counting in the request itself.

    A retried request gets the same answer again, and conversations do not disturb each other. It counts
    user messages, so it does not suit histories whose turns are dropped.
    """

    def script(request: ProviderRequest) -> Answerable:
        try:
            return turns[request.turn - 1][request.step]
        except IndexError:
            raise AssertionError(f"nothing is scripted for turn {request.turn}, step {request.step}") from None

    return script
