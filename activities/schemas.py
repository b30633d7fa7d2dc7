"""JSON schemas as lane contracts have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

__all__ = ["structure_of"]

# Of a schema, what a model's calls must fit. Titles and descriptions are prose, as instructions are.
_PROSE = frozenset({"title", "description", "examples"})


def structure_of(schema: object) -> object:
    """A JSON schema without its prose."""
    if isinstance(schema, Mapping):
        pairs = cast("Mapping[str, object]", schema).items()
        # A property may well be called `title`: only keywords of the schema itself are prose.
        return {
            key: {name: structure_of(inner) for name, inner in cast("Mapping[str, object]", value).items()}
            if key in ("properties", "$defs") and isinstance(value, Mapping)
            else structure_of(value)
            for key, value in pairs
            if key not in _PROSE
        }
    if isinstance(schema, list):
        return [structure_of(item) for item in cast("list[object]", schema)]
    return schema
