"""The stored form of a turn's output, which comes back as what it was: of its own type, in another process.

JSON as an application would show it does not: computed fields are refused where a model forbids extra fields, a field
is written under one alias and read under another, and of two types with the same fields the first would always be read.
So outputs are written by the names of their fields, without what is computed, and with the type that they have.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Union, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import to_json

from laneway.errors import StoreError

__all__ = ["OutputForm"]

_FORM = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")


class OutputForm:
    """Writes and reads outputs of one of several types.

    Args:
        types: the types that an output may have, in the order of the agent's; empty where nobody knows.
        context: pydantic's validation context, which validators of the types may ask for.
    """

    def __init__(self, types: Sequence[Any], *, context: object = None) -> None:
        self._types = tuple(types)
        self._context = context

    def encode(self, output: object) -> tuple[str, str | None]:
        """An output as JSON, and the name of its type; None where it has none of the types.

        Raises:
            PydanticSerializationError, ValueError, TypeError, RecursionError: it has no JSON form.
        """
        type_ = self._type_of(output)
        if type_ is None:
            return to_json(output, bytes_mode="base64").decode(), None
        # A subclass is written with what it has more.
        exact = type(output) if isinstance(output, BaseModel) else type_
        blob = self._adapter(exact).dump_json([output], round_trip=True, by_alias=False, warnings=False)
        return blob[1:-1].decode(), self._names[self._types.index(type_)]

    def decode(self, text: str, name: str | None = None) -> object:
        """The output that was encoded.

        Args:
            text: its JSON.
            name: that of its type, where it has one.

        Raises:
            StoreError: the types do not take it back.
        """
        if not self._types:
            return json.loads(text)
        adapter = self._adapter(self._types[self._names.index(name)]) if name in self._names else self._any
        context = cast("Any", self._context)
        try:
            return adapter.validate_json(f"[{text}]", by_alias=True, by_name=True, context=context)[0]
        except ValidationError as error:
            raise _not_taken_back(text, error) from error

    @cached_property
    def _names(self) -> list[str]:
        """The names of the types, the same in each process: not their modules, which differ for a script."""
        known: Counter[str] = Counter()
        names: list[str] = []
        for type_ in self._types:
            name = type_.__qualname__ if isinstance(type_, type) else str(type_)
            known[name] += 1
            names.append(name if known[name] == 1 else f"{name} {known[name]}")
        return names

    @cached_property
    def _any(self) -> TypeAdapter[list[Any]]:
        return self._adapter(Union[self._types])  # noqa: UP007

    @staticmethod
    def _adapter(type_: Any) -> TypeAdapter[list[Any]]:
        # A list, because the form of a model or a dataclass by itself cannot be set from outside.
        return TypeAdapter(cast("Any", list)[type_], config=_FORM)

    def _type_of(self, output: object) -> Any:
        """The type that the output has; None where it has none of them."""
        for type_ in self._types:
            if type_ is type(output):
                return type_
        for type_ in self._types:
            if _is_model(type_):
                if isinstance(output, type_):
                    return type_
                continue
            try:
                self._adapter(type_).validate_python([output], strict=True, context=cast("Any", self._context))
            except (ValidationError, PydanticSchemaGenerationError, PydanticUserError):
                continue
            return type_
        return None


def _is_model(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, BaseModel)


def _not_taken_back(text: str, error: ValidationError) -> StoreError:
    """The error of an output that its own type refuses."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"][1:]))
    shown = text if len(text) <= 500 else f"{text[:500]}…"
    return StoreError(
        f"the turn is committed, and its output cannot be read: {error.title.removeprefix('list[').removesuffix(']')} "
        f"does not take its own JSON back ({f'{where}: ' if where else ''}{first['msg']}). The JSON is {shown}, whole "
        "in `(await turn.record()).output`; give the type serializers that its validators take"
    )
