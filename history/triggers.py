"""When a stock processor acts and how much it keeps: sizes in messages, tokens or fractions of a model's window.

Everything that can be wrong with a size is refused where the processor is made: found inside a turn, it would fail
every turn of every lane.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, cast, get_args

from laneway.errors import InvalidArgument

__all__ = [
    "ContextSize",
    "Size",
    "TokenCounter",
    "Triggers",
    "check_tokens",
    "is_whole",
    "size_of",
    "sizes_of",
    "window_of",
]

Unit = Literal["messages", "tokens", "fraction"]

ContextSize: TypeAlias = tuple[Literal["messages", "tokens"], int] | tuple[Literal["fraction"], float]
"""A size of a history: `("messages", n)`, `("tokens", n)`, or `("fraction", f)` of the model's window, 0 < f <= 1."""

Triggers: TypeAlias = ContextSize | Sequence[ContextSize]
"""One size, or several of which any is enough. A history that is as large as it, or larger, has reached it."""

TokenCounter: TypeAlias = Callable[[Any], int | Awaitable[int]]
"""Counts the tokens of a list of native messages. A sync one runs in a worker thread, an async one is awaited."""


@dataclass(frozen=True, slots=True)
class Size:
    """A size that was found to make sense. `amount` is a whole number but for fractions."""

    unit: Unit
    amount: float


def size_of(given: object, name: str) -> Size:
    """Check one size.

    Args:
        given: what a caller passed, a tuple or a list of two.
        name: the parameter, for the message.

    Raises:
        InvalidArgument: it is no size: the unit is unknown, the number negative or not whole, the fraction not in
            (0, 1].
    """
    if not _is_pair(given):
        raise InvalidArgument(f"{name}={given!r} is not a size: give a unit and an amount, such as ('messages', 20)")
    unit, amount = cast("Sequence[object]", given)
    if unit not in get_args(Unit):
        raise InvalidArgument(f"{name}={given!r} has the unknown unit {unit!r}: use 'messages', 'tokens' or 'fraction'")
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise InvalidArgument(f"{name}={given!r} has the amount {amount!r}, which is not a number")
    if unit == "fraction":
        if not 0 < amount <= 1:  # so that NaN is refused too
            raise InvalidArgument(f"{name}={given!r}: a fraction is in (0, 1], and {amount!r} is not")
    elif not is_whole(amount, least=0):
        raise InvalidArgument(f"{name}={given!r}: a number of {unit} is whole and not negative, and {amount!r} is not")
    return Size(cast("Unit", unit), amount)


def sizes_of(given: object, name: str) -> tuple[Size, ...]:
    """Check one size or a list of them.

    Raises:
        InvalidArgument: one is no size (see `size_of`), or the list is empty.
    """
    if _is_pair(given) and isinstance(cast("Sequence[object]", given)[0], str):
        return (size_of(given, name),)
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise InvalidArgument(f"{name}={given!r} holds no size: give one, such as ('messages', 100), or a list of them")
    return tuple(size_of(one, name) for one in cast("Sequence[object]", given))


def check_tokens(given: object, name: str) -> None:
    """Check a number of tokens that may be left out.

    Raises:
        InvalidArgument: it is neither None nor a positive int.
    """
    if given is not None and not is_whole(given, least=1):
        raise InvalidArgument(f"{name}={given!r} is not a positive whole number of tokens")


def is_whole(given: object, *, least: int) -> bool:
    """Whether something is a whole number, and not a small one. A bool is none: it is a slip."""
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def window_of(model: object) -> int | None:
    """How many tokens of input a model takes, as far as that is known.

    A framework's model object is asked for its own profile; a name is looked up in `genai-prices`.

    Args:
        model: a name such as `anthropic:claude-sonnet-4-5`, or a model object of an agent framework.
    """
    if isinstance(model, str):
        return _window_of_name(model)
    # Pydantic AI's models have a `context_window`, LangChain's a profile that holds `max_input_tokens`.
    window = getattr(model, "context_window", None)
    if window is None and isinstance(profile := getattr(model, "profile", None), Mapping):
        window = cast("Mapping[str, object]", profile).get("max_input_tokens")
    return window if isinstance(window, int) and window > 0 else None


@cache
def _window_of_name(name: str) -> int | None:
    # Imported here: its tables take a while to load, and only fractions ask for them.
    from genai_prices.data_snapshot import get_snapshot

    provider, _, model = name.rpartition(":")
    if not model:
        return None
    try:
        _, found = get_snapshot().find_provider_model(
            model, provider=None, provider_id=provider or None, provider_api_url=None
        )
    except LookupError:
        return None
    return found.context_window or None


def _is_pair(given: object) -> bool:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        return False
    return len(cast("Sequence[object]", given)) == 2
