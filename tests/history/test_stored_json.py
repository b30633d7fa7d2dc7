"""JSON of whatever a framework or user code has in hand."""

from __future__ import annotations

import json

import pytest

from laneway.history.stored_json import any_json, compact_json, kind_of

ODD = "caf\udce9"


@pytest.mark.parametrize("value", [ODD, {ODD: [ODD, 1]}, {"plain": "café"}])
def test_any_text_comes_back(value: object):
    """A lone surrogate has no form in UTF-8: it is written as JSON's escape."""
    assert json.loads(any_json(value)) == value
    assert json.loads(compact_json(value)) == value


def test_what_has_no_form_is_named_the_same_in_every_process():
    assert any_json({"a": object()}, fallback=kind_of) == b'{"a":"object"}'
    assert any_json({"a": object(), "b": ODD}, fallback=kind_of) == b'{"a":"object","b":"caf\\udce9"}'
