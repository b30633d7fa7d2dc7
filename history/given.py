"""What a caller gives to a constructor, refused where it is given: found in a turn, it would fail every turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import UnionType
from typing import Any, Final, cast

from laneway.errors import InvalidArgument

__all__ = [
    "check_callable",
    "check_count",
    "check_delay",
    "check_flag",
    "check_kind",
    "check_model",
    "check_number",
    "check_text",
    "is_function",
    "listed",
    "refused",
    "types_listed",
]

_MODELS: Final = frozenset({("pydantic_ai", "Model"), ("langchain_core", "BaseChatModel")})
"""The package and the name of what each framework's models inherit from. By name, since history knows no framework."""


def refused(name: str, value: object, give: str) -> InvalidArgument:
    """The error for an argument that cannot work.

    Args:
        name: the argument, after whose it is: `RetryPolicy: backoff`.
        value: what was given.
        give: what to give in its place.
    """
    return InvalidArgument(f"{name} is {value!r} ({type(value).__name__}): give {give}")


def check_kind(name: str, value: object, kind: type | UnionType, give: str) -> None:
    """Refuse what is neither None nor of a type. For the arguments see `refused`."""
    if value is not None and not isinstance(value, kind):
        raise refused(name, value, give)


def check_flag(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse what is no bool, nor None where it may be left open."""
    if not isinstance(value, bool) and not (optional and value is None):
        raise refused(name, value, "True, False, or None for the default" if optional else "True or False")


def check_callable(name: str, value: object, give: str) -> None:
    """Refuse what is neither None nor a function; see `is_function`."""
    if value is not None and not is_function(value):
        raise refused(name, value, give)


def is_function(value: object) -> bool:
    """Whether it can be called for an answer; a class gives an instance of itself."""
    return callable(value) and not isinstance(value, type)


def check_text(name: str, value: object, *, give: str = "some text") -> None:
    """Refuse what is no text, or none to be seen."""
    if not isinstance(value, str) or not value.strip():
        raise refused(name, value, give)


def check_count(name: str, value: object, *, least: int, give: str) -> None:
    """Refuse what is no whole number, or too small a one. A bool is none: it is a slip."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refused(name, value, give)


def check_number(name: str, value: object, *, above: float, give: str) -> None:
    """Refuse what is no finite number, or not above another one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= above:
        raise refused(name, value, give)


def check_delay(name: str, value: object) -> None:
    """Refuse what is no `timedelta`, or a negative one."""
    if not isinstance(value, timedelta) or value < timedelta(0):
        raise refused(name, value, "a timedelta that is not negative")


def listed(name: str, value: object, give: str, *, is_one: Callable[[object], bool]) -> tuple[Any, ...]:
    """What an iterable holds, none of it refused. Text is none, and neither are the keys of a mapping."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray | Mapping):
        raise refused(name, cast("object", value), give)
    found = tuple(cast("Iterable[object]", value))
    for one in found:
        if not is_one(one):
            raise refused(f"{name}: an item", one, give)
    return found


def types_listed(name: str, value: object) -> tuple[type | tuple[str, str], ...]:
    """The types of an application's own that stored data may name, none of them refused."""
    return listed(name, value, "a list of classes, or of pairs of a module's and a class's name", is_one=_is_type)


def _is_type(one: object) -> bool:
    if isinstance(one, type):
        return True
    return isinstance(one, tuple) and list(map(type, cast("tuple[object, ...]", one))) == [str, str]


def check_model(name: str, value: object) -> None:
    """Refuse what is neither None, nor the name of a model, nor a model of Pydantic AI's or LangChain's."""
    if value is None or (isinstance(value, str) and value.strip()):
        return
    inherited = {(base.__module__.partition(".")[0], base.__name__) for base in type(value).__mro__}
    if not inherited & _MODELS:
        raise refused(
            name,
            value,
            "a model's name, such as 'openai:gpt-5-mini', a Pydantic AI model, or a LangChain chat model without tools "
            "or parsers around it",
        )
