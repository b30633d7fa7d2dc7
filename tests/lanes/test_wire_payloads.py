"""What goes over Temporal: as the SDK writes and reads it, whatever the values are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.converter import DefaultPayloadConverter

from laneway.activities.wire import (
    Awaited,
    ChildTurn,
    LaneInput,
    QueuedTurn,
    StepInput,
    StepOutcome,
    SubmitReceipt,
)
from laneway.activities.wire_payloads import WirePayloads

OURS, SDKS = WirePayloads(), DefaultPayloadConverter()

TEXTS = st.text(max_size=20)
NUMBERS = st.floats(allow_nan=False) | st.none()
CHILDREN = st.builds(ChildTurn, *[TEXTS] * 6, s=st.just(1.5), n=TEXTS, m=st.integers(0, 9))
AWAITED = st.builds(Awaited, TEXTS, NUMBERS, CHILDREN | st.none())
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.builds(QueuedTurn, TEXTS, TEXTS, NUMBERS, NUMBERS, st.sampled_from(["enqueue", "steer"]), st.booleans()),
    st.builds(SubmitReceipt, st.sampled_from(["new", "known"]), st.integers()),
    st.builds(StepInput, *[TEXTS] * 5, st.integers(), st.integers() | st.none(), st.lists(TEXTS)),
    st.builds(
        StepOutcome,
        st.sampled_from(["next", "waiting"]),
        st.integers(),
        st.lists(AWAITED, max_size=2),
        st.lists(TEXTS),
    ),
    st.builds(LaneInput, TEXTS, TEXTS, TEXTS),
)


@given(VALUES)
def test_a_value_is_written_and_read_as_by_the_sdk(value: Any):
    written = OURS.to_payload(value)
    assert written == SDKS.to_payload(value)
    assert OURS.from_payload(written, type(value)) == SDKS.from_payload(written, type(value)) == value


def _payload(value: object) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


def test_a_field_that_a_later_version_has_added_is_left_out():
    assert OURS.from_payload(_payload({"s": "new", "q": 1, "later": [2]}), SubmitReceipt) == SubmitReceipt("new", 1)


def test_a_field_that_an_earlier_version_did_not_have_is_as_by_default():
    assert OURS.from_payload(_payload({"id": "t", "p": "d"}), QueuedTurn) == QueuedTurn("t", "d")


@pytest.mark.parametrize("value", [{"s": "new", "q": "many"}, {"q": 1}, [1], None, {"s": 5}])
def test_what_cannot_be_read_is_refused_as_by_the_sdk(value: object):
    payload = _payload(value)
    with pytest.raises(Exception) as expected:  # noqa: PT011 - it is the SDK's own that is looked for
        SDKS.from_payload(payload, SubmitReceipt)
    with pytest.raises(type(expected.value)) as raised:
        OURS.from_payload(payload, SubmitReceipt)
    assert str(raised.value) == str(expected.value)
