"""What may be referred to, and that a name which is given away again changes nothing of a turn under way."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import pytest

from laneway import SlidingWindowProcessor
from laneway.activities.references import Reference, Registry, UnknownReference, fingerprint
from laneway.errors import ConfigurationError

from tests.scopes import named


class Counting:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, ctx: object) -> object:
        return self.n


def test_what_has_a_name_is_found_again():
    registry = Registry()
    reference = registry.capture(named.keep_none, what="it")
    assert reference.name == "tests.scopes.named:keep_none"
    assert Registry().resolve(Reference.parse(str(reference)), what="it") is named.keep_none
    assert registry.capture("tests.scopes.named:keep_none", what="it") == reference
    window = registry.register("window", SlidingWindowProcessor())
    assert registry.resolve(registry.capture(window, what="it"), what="it") is window
    assert registry.capture("window", what="it") == registry.capture(window, what="it")
    local = registry.register("local", lambda ctx: ctx.messages)
    assert registry.capture(local, what="it").name == "local"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("lambda", "is a lambda, so no worker could find it"),
        ("closure", "is local to another function"),
        ("partial", "has no name that a worker could find it by"),
        ("object", "has no name that a worker could find it by"),
        ("method", "has no name that a worker could find it by"),
        ("number", "has no name that a worker could find it by"),
        ("unknown name", "is not registered: register it"),
        ("unknown member", "has no 'nothing'"),
        ("unknown module", "cannot be imported"),
    ],
)
def test_what_a_worker_could_not_find_is_refused_with_what_to_do(kind: str, says: str):
    value: Any = {
        "lambda": lambda ctx: ctx.messages,
        "closure": _closure(3),
        "partial": functools.partial(named.keep_none),
        "object": Counting(1),
        "method": Counting(1).__call__,
        "number": 5,
        "unknown name": "nowhere",
        "unknown member": "tests.scopes.named:nothing",
        "unknown module": "no_such_module_here:thing",
    }[kind]
    with pytest.raises(ConfigurationError, match=says):
        Registry().capture(value, what="the history processor")


def _closure(n: int) -> Any:
    def keep(ctx: Any) -> Any:
        return ctx.keep_recent_groups(n)

    return keep


def test_a_function_of_the_script_that_was_started_is_refused():
    def of_the_script(ctx: Any) -> Any:
        return ctx.messages

    of_the_script.__module__, of_the_script.__qualname__ = "__main__", "of_the_script"
    with pytest.raises(ConfigurationError, match="which no worker can import"):
        Registry().capture(of_the_script, what="it")


def test_a_redefinition_does_not_replace_what_was_captured():
    registry = Registry()
    first = registry.register("trim", _closure(1))
    captured = registry.capture("trim", what="it")
    second = registry.register("trim", _closure(2))
    assert registry.resolve(captured, what="it") is first
    assert registry.resolve(registry.capture("trim", what="it"), what="it") is second


def test_a_redefinition_in_a_module_does_not_either(monkeypatch: pytest.MonkeyPatch):
    module = _module("redefined", "def trim(ctx): return ctx.messages[1:]", monkeypatch)
    registry = Registry()
    first: Any = module.trim  # type: ignore[attr-defined]
    captured = registry.capture(first, what="it")
    _module("redefined", "def trim(ctx): return ctx.messages[2:]", monkeypatch)
    assert registry.resolve(captured, what="it") is first


class Window:
    """Holds what it is set to where no fingerprint looks."""

    def __init__(self, n: int) -> None:
        self.n = n

    def trim(self, ctx: Any) -> Any:
        return ctx.messages[-self.n :]


def test_a_redefinition_that_no_fingerprint_tells_apart_does_not_either():
    """Closures over the application's own objects, and values that are no callables, such as models."""

    def over(window: Window) -> Any:
        return lambda ctx: ctx.messages[-window.n :]

    for make in (over, Window):
        registry = Registry()
        first = registry.register("it", make(Window(1)) if make is over else Window(1))
        captured = registry.capture("it", what="it")
        second = registry.register("it", make(Window(2)) if make is over else Window(2))
        assert registry.resolve(Reference.parse(str(captured)), what="it") is first
        newer = registry.capture("it", what="it")
        assert newer != captured
        assert registry.resolve(newer, what="it") is second
        assert registry.register("it", second) is second
        assert registry.capture("it", what="it") == newer, "it is the same value again"
        # In a process that was given the name once, its number says nothing.
        elsewhere = Registry()
        only = elsewhere.register("it", make(Window(2)) if make is over else Window(2))
        assert elsewhere.resolve(newer, what="it") is only


def test_a_bound_method_that_is_registered_is_known_by_itself():
    """It is another object each time it is asked for, and another version for each object that it is bound to."""
    registry = Registry()
    window = Window(1)
    registry.register("trim", window.trim)
    captured = registry.capture(window.trim, what="it")
    assert captured.name == "trim"
    with pytest.raises(ConfigurationError, match="has no name that a worker could find it by: register it"):
        registry.capture(Window(1).trim, what="it")
    registry.register("trim", Window(2).trim)
    assert registry.resolve(captured, what="it") == window.trim
    assert fingerprint(Window(1).trim) == fingerprint(Window(1).trim)
    assert fingerprint(Window(1).trim) != fingerprint(Window(2).trim)


def test_one_value_may_have_two_names():
    registry = Registry()
    registry.register("one", named.keep_none)
    registry.register("two", named.keep_none)
    assert [registry.capture(name, what="it").name for name in ("one", "two")] == ["one", "two"]


def test_another_process_that_has_another_version_refuses_it(monkeypatch: pytest.MonkeyPatch):
    """A registry of its own stands for the process."""
    module = _module("deployed", "def trim(ctx): return ctx.messages[1:]", monkeypatch)
    captured = Registry().capture(module.trim, what="the processor")  # type: ignore[attr-defined]
    moved = _module("deployed", "\n\n\ndef trim(ctx):\n    return ctx.messages[1:]", monkeypatch)
    assert Registry().resolve(captured, what="the processor") is moved.trim  # type: ignore[attr-defined]
    _module("deployed", "def trim(ctx): return ctx.messages[2:]", monkeypatch)
    with pytest.raises(UnknownReference, match="run a worker that has the code as it was"):
        Registry().resolve(captured, what="the processor")
    with pytest.raises(UnknownReference, match="not registered with this worker's app, which has: nothing"):
        Registry().resolve(Reference("window", "3.11-0"), what="the processor")


def test_what_makes_another_version():
    assert fingerprint(_closure(1)) == fingerprint(_closure(1))
    assert fingerprint(_closure(1)) != fingerprint(_closure(2))
    assert fingerprint(SlidingWindowProcessor()) == fingerprint(SlidingWindowProcessor())
    assert fingerprint(SlidingWindowProcessor()) != fingerprint(SlidingWindowProcessor(("messages", 7)))
    assert fingerprint(Counting(1)) != fingerprint(Counting(2))
    assert fingerprint(lambda x: {1, "a", x}) == fingerprint(lambda x: {1, "a", x})
    assert fingerprint(lambda x=1: x) != fingerprint(lambda x=2: x)


@pytest.mark.parametrize("name", ["", "a:b", "a#b", " a"])
def test_a_name_that_cannot_be_told_apart_is_refused(name: str):
    with pytest.raises(Exception, match="name"):
        Registry().register(name, named.keep_none)


def _module(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(f"laneway_test_{name}")
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module
