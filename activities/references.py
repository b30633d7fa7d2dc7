"""Names for what a caller and a worker both have: a callable goes to a worker by its name, never by its code.

A reference has the name under which the application registered a value, or `module:qualname`, and a fingerprint of the
callable's code. A worker that has another callable by that name does not use it in place of the one that was meant:
within a process every version that was captured is kept, elsewhere the turn is refused. Where a name is given to
another value that no fingerprint tells from the one before, a number does; it says something in that process alone.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from types import CodeType, FunctionType, MethodType
from typing import Any, Self, TypeVar, cast

from laneway.errors import ConfigurationError
from laneway.history.lanes import check_name

__all__ = ["Reference", "Registry", "UnknownReference", "fingerprint"]

T = TypeVar("T")

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_DEPTH = 6
_NUMBERED = "~"


class UnknownReference(ConfigurationError):
    """A worker does not have what a turn refers to, or has another version of it."""


@dataclass(frozen=True)
class Reference:
    """What a worker finds a value by.

    Attributes:
        name: the name that the application registered, or `module:qualname`.
        version: a fingerprint of the callable, empty for what is none; and where it was not the first value of that
            name and fingerprint, `~` and its number.
    """

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name}#{self.version}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str()` of a reference gives."""
        name, _, version = text.rpartition("#")
        return cls(name, version)


class Registry:
    """What an application has registered by name, and every version of a callable that was captured here."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[Reference, Any]] = {}
        # With the values themselves: while they are here, nothing else has their identity.
        self._names: dict[object, tuple[Reference, Any]] = {}
        self._versions: dict[Reference, Any] = {}

    def register(self, name: str, value: T) -> T:
        """Register a value; the newest one of a name is what new turns refer to.

        Raises:
            InvalidInput: the name cannot be one.
        """
        check_name(name, what="the name to register")
        if ":" in name or "#" in name:
            raise ConfigurationError(f"the name {name!r} has a ':' or a '#', which references use: choose another one")
        self._values[name] = self._kept(Reference(name, _version(value)), value), value
        return value

    def _kept(self, reference: Reference, value: object) -> Reference:
        """Keep a value, so that a later one of its name does not take its place in the turns that captured this one."""
        first, number = reference, 1
        while _identity(self._versions.get(reference, value)) != _identity(value):
            number += 1
            reference = Reference(first.name, f"{first.version}{_NUMBERED}{number}")
        self._versions[reference] = value
        self._names[_identity(value)] = reference, value
        return reference

    def has(self, name: str) -> bool:
        """Whether a value is registered under a name."""
        return name in self._values

    def capture(self, value: object, *, what: str) -> Reference:
        """The reference to a value, by which a worker finds it.

        Args:
            value: a registered value or its name; or a function or class that can be imported, or its
                `module:qualname`.
            what: what it is for, such as `the history processor`.

        Raises:
            ConfigurationError: it has no name that a worker could find it by.
        """
        if (known := self._names.get(_identity(value))) is not None:
            return known[0]
        if not isinstance(value, str):
            return self._kept(Reference(_importable_name(value, what=what), _version(value)), value)
        if (registered := self._values.get(value)) is not None:
            return registered[0]
        if ":" not in value:
            raise ConfigurationError(f"{what} {value!r} is not registered: register it with the app, or give it itself")
        found = _imported(value, what=what)
        return self._kept(Reference(value, _version(found)), found)

    def resolve(self, reference: Reference, *, what: str) -> Any:
        """What a reference refers to, in the version that was captured.

        Raises:
            UnknownReference: it is not here.
        """
        if reference in self._versions:
            return self._versions[reference]
        if ":" in reference.name:
            try:
                value = _imported(reference.name, what=what)
            except ConfigurationError as error:
                raise UnknownReference(str(error)) from error
        elif (registered := self._values.get(reference.name)) is None:
            known = ", ".join(sorted(self._values)) or "nothing"
            raise UnknownReference(
                f"{what} {reference.name!r} is not registered with this worker's app, which has: {known}"
            )
        else:
            value = registered[1]
        version, captured = _version(value), reference.version.partition(_NUMBERED)[0]
        if _comparable(version, captured) and version != captured:
            raise UnknownReference(
                f"{what} {reference.name!r} is not the one here that the turn was submitted with (version "
                f"{captured}, here {version}): run a worker that has the code as it was, or cancel the turn "
                "and submit it again"
            )
        self._versions[reference] = value
        return value


def _identity(value: object) -> object:
    """Tells values apart. A bound method is made anew each time it is asked for, and is the same for all that."""
    return (id(value.__self__), id(value.__func__)) if isinstance(value, MethodType) else id(value)


def _comparable(one: str, other: str) -> bool:
    """Fingerprints are of bytecode, which differs from one Python to the next: then the name alone decides."""
    return one.partition("-")[0] == other.partition("-")[0]


def _version(value: object) -> str:
    return f"{_PYTHON}-{fingerprint(value)}" if callable(value) else ""


def _importable_name(value: object, *, what: str) -> str:
    where = f"{what} {_shown(value)}"
    advice = "register it (@app.processor, @app.condition, @app.hook or app.register(name, value))"
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str) or not isinstance(value, FunctionType | type):
        raise ConfigurationError(f"{where} has no name that a worker could find it by: {advice}")
    if "<" in qualname:
        kind = "a lambda" if "<lambda>" in qualname else "local to another function"
        raise ConfigurationError(f"{where} is {kind}, so no worker could find it: define it in a module, or {advice}")
    if module == "__main__":
        raise ConfigurationError(
            f"{where} is in the script that was started, which no worker can import: move it to a module, or {advice}"
        )
    if _member(sys.modules.get(module), qualname) is not value:
        raise ConfigurationError(
            f"{where} is not what its module has under that name (a decorator may have replaced it): {advice}"
        )
    return f"{module}:{qualname}"


def _imported(name: str, *, what: str) -> object:
    module, _, qualname = name.partition(":")
    try:
        found = _member(importlib.import_module(module), qualname)
    except ImportError as error:
        raise ConfigurationError(f"{what} {name!r} cannot be imported: {error}") from error
    if found is None:
        raise ConfigurationError(f"{what} {name!r} is not there: module {module!r} has no {qualname!r}")
    return found


def _member(module: object, qualname: str) -> object | None:
    found: object | None = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _shown(value: object) -> str:
    return str(getattr(value, "__qualname__", None) or repr(value))


# Fingerprints ---------------------------------------------------------------------------------------------------------


def fingerprint(value: object) -> str:
    """A digest of a callable's code, its defaults and what it encloses; of an object, of its class and plain values.

    What the code calls is not in it.
    """
    return blake2b(repr(_form(value, _DEPTH)).encode(), digest_size=6).hexdigest()


def _form(value: object, depth: int) -> object:
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes():
            return value
        case CodeType():
            # No file names and no line numbers: moving a function changes nothing.
            return ("code", value.co_code.hex(), value.co_names, value.co_varnames, _forms(value.co_consts, depth))
        case FunctionType():
            cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            parts = (value.__code__, value.__defaults__, value.__kwdefaults__, *cells)
            return ("function", *_forms(parts, depth))
        case MethodType():
            owner = value.__self__
            held = owner if isinstance(owner, type) else (type(owner), getattr(owner, "__dict__", None))
            return ("method", *_forms((value.__func__, held), depth))
        case functools.partial():
            partial = cast("functools.partial[Any]", value)
            return ("partial", *_forms((partial.func, partial.args, partial.keywords), depth))
        case timedelta() | Enum() | Decimal():
            return ("value", repr(value))
        case type():
            return ("type", value.__module__, value.__qualname__)
        case tuple() | list():
            return _forms(cast("Sequence[object]", value), depth)
        case set() | frozenset():
            return ("set", *sorted(map(repr, _forms(cast("Iterable[object]", value), depth))))
        case dict():
            pairs = cast("Mapping[object, object]", value).items()
            return ("dict", *sorted(repr(_forms(pair, depth)) for pair in pairs))
        case _:
            kind = type(value)
            name = ("object", kind.__module__, kind.__qualname__)
            if not callable(value):
                return (*name, *_forms((_fields(value),), depth))
            call = vars(kind).get("__call__")
            return (*name, *_forms((call, _fields(value)), depth))


def _forms(values: Iterable[object], depth: int) -> tuple[object, ...]:
    return tuple(_form(value, depth - 1) for value in values) if depth > 0 else ()


def _fields(value: object) -> Mapping[str, object]:
    """What an object holds, as far as that is its configuration: all of a callable's, a dataclass's fields."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(getattr(value, "__dict__", {})) if callable(value) else {}


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
