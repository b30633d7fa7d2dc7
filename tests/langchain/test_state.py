"""A graph's state comes back as it was, and what is held already is not stored again."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.pregel._checkpoint import empty_checkpoint
from langgraph.types import Send

from laneway.activities.langchain_state import Saved, Spaces, StateCodec
from laneway.errors import CheckpointLost
from laneway.langgraph_serde import strict_serializer

SERDE = strict_serializer(None, ())
HISTORY = [HumanMessage("hello", id="h"), AIMessage("x" * 300, id="a")]

values = st.recursive(
    st.none()
    | st.integers(0, 5)
    | st.sampled_from(["short", "y" * 500, "z" * 500, *HISTORY, HumanMessage("of no history " * 20, id="n")]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from("ab"), inner)
        | st.builds(Send, st.just("node"), inner)
    ),
    max_leaves=12,
)
channels = st.dictionaries(st.sampled_from(["files", "notes", "sends"]), values)


def _spaces(held: dict[str, Any]) -> Spaces:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = held
    return {"": [Saved(checkpoint, {"step": 1})]}


def _values(codec: StateCodec, blob: bytes) -> dict[str, Any]:
    return codec.load_spaces(blob)[""][0].checkpoint["channel_values"]


@settings(max_examples=50)
@given(channels, channels)
def test_what_is_held_and_what_is_new_come_back_together(committed: dict[str, Any], staged: dict[str, Any]):
    """Whatever the two have in common, and however the history has changed between them."""
    held = StateCodec(SERDE, HISTORY).dump_spaces(_spaces(committed)).blob
    for history in (HISTORY, HISTORY[1:], [HISTORY[1], HISTORY[0]]):
        blob = StateCodec(SERDE, history, held=held).dump_spaces(_spaces(staged)).blob
        assert _values(StateCodec(SERDE, history, held=held), blob) == staged


def test_what_is_held_is_not_stored_again():
    """A large value that does not change costs a turn's steps next to nothing; without what is held it is missed."""
    files = {f"{n}.txt": random.Random(n).randbytes(10_000).hex() for n in range(10)}
    whole = StateCodec(SERDE).dump_spaces(_spaces({"files": files})).blob
    changed = {**files, "new.txt": "new " * 50}
    blob = StateCodec(SERDE, held=whole).dump_spaces(_spaces({"files": changed})).blob
    assert len(blob) < 2_000
    assert len(whole) > 100_000
    assert _values(StateCodec(SERDE, held=whole), blob) == {"files": changed}
    with pytest.raises(CheckpointLost, match="a part of a LangGraph checkpoint is missing"):
        StateCodec(SERDE).load_spaces(blob)
