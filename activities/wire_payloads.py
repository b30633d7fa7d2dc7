"""What goes over Temporal as JSON, written and read as the SDK does it, but quickly for the types of each turn.

The SDK copies a dataclass field by field, and looks up the types of its fields anew for each value that it reads. A
turn has four such values, each of which is written and read once. Here the types of fields are looked up once; the JSON
is the same, to the byte, and whatever is not as plain as most turns' values are is left to the SDK.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
)

from laneway.activities.wire import QueuedTurn, StepInput, StepOutcome, SubmitReceipt

__all__ = ["WIRE", "WirePayloads"]

_QUICK: Final = (QueuedTurn, StepInput, StepOutcome, SubmitReceipt)
_encode: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode

_Check = Callable[[object], bool]


def _check_of(hint: Any) -> _Check:
    """Tells a value that is of a plain type from any other: one that the SDK is to convert, or to refuse."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (str, int, float, bool, NoneType):
        return lambda value: type(value) is hint
    if origin is Literal:
        return lambda value: type(value) is str and value in arguments
    if origin is list:
        item = _check_of(arguments[0])
        return lambda value: type(value) is list and all(map(item, cast("list[object]", value)))
    if origin in (Union, UnionType):
        checks = [_check_of(one) for one in arguments]
        return lambda value: any(check(value) for check in checks)
    return lambda value: False


_CHECKS: Final[Mapping[type, Mapping[str, _Check]]] = {
    kind: {name: _check_of(hint) for name, hint in get_type_hints(kind).items()} for kind in _QUICK
}


class _WireJson(JSONPlainPayloadConverter):
    def to_payload(self, value: Any) -> Payload | None:
        held: object = value
        checks = _CHECKS.get(type(held))
        if checks is None:
            return super().to_payload(value)
        fields = cast("dict[str, object]", vars(held))
        if not all(check(fields[name]) for name, check in checks.items()):
            return super().to_payload(value)
        return Payload(metadata={"encoding": b"json/plain"}, data=_encode(fields).encode())

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        checks = None if type_hint is None else _CHECKS.get(type_hint)
        if checks is None or type_hint is None:
            return super().from_payload(payload, type_hint)
        try:
            fields = json.loads(payload.data)
            if all(checks[name](value) for name, value in fields.items()):
                return type_hint(**fields)
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # the SDK says what is wrong, or leaves out what a later version has added
        return super().from_payload(payload, type_hint)


class WirePayloads(CompositePayloadConverter):
    """The SDK's own converters, with that of JSON as above."""

    def __init__(self) -> None:
        given = DefaultPayloadConverter().converters.values()
        super().__init__(*(_WireJson() if type(one) is JSONPlainPayloadConverter else one for one in given))


WIRE: Final = replace(DataConverter.default, payload_converter_class=WirePayloads)
"""What turns values into payloads and back, for clients and workers alike; others' SDKs read the same."""
