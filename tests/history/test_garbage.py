"""Garbage collection held back: only within the block, and as it was before. And what it is not to look at."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from traceback import format_exception
from weakref import ReferenceType, ref

import pytest

from laneway.history.checkpoints import StoredEntry, decode_entries, encode_entries
from laneway.history.garbage import collection_paused, forget_frames, set_aside


def _fail_without_collection() -> None:
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise RuntimeError


def test_it_is_off_within_the_block_and_on_after_it_whatever_happens():
    with pytest.raises(RuntimeError):
        _fail_without_collection()
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_off():
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_decoding_a_long_history_makes_no_full_collection():
    """Each would look at all objects of the process."""
    encoded, _ = encode_entries([StoredEntry(b"{}", {"r": str(at), "o": [["user"]]}) for at in range(20_000)], after="")
    gc.collect()
    before = gc.get_stats()[2]["collections"]
    entries = decode_entries(encoded, after="", epoch=0)
    assert gc.get_stats()[2]["collections"] == before
    assert len(entries) == 20_000


class _Large:
    """Something to be let go."""


def _fails(large: _Large, held: list[ReferenceType[_Large]]) -> None:
    held.append(ref(large))
    error = ValueError("this one knows itself")
    try:
        raise error
    except ValueError as cause:
        raise ExceptionGroup("both", [error, KeyError("other")]) from cause


def test_what_an_error_went_through_is_let_go_without_a_collection_and_its_trace_stays_readable():
    held: list[ReferenceType[_Large]] = []
    gc.collect()
    gc.disable()
    try:
        try:
            _fails(_Large(), held)
        except ExceptionGroup as error:
            forget_frames(error)
            text = "".join(format_exception(error))
        assert held[0]() is None
        assert "_fails" in text
        assert "this one knows itself" in text
    finally:
        gc.enable()


@pytest.fixture
def nothing_set_aside() -> Iterator[None]:
    before = gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.unfreeze()
    if before:
        gc.freeze()


@pytest.mark.usefixtures("nothing_set_aside")
def test_what_is_set_aside_is_not_looked_at_and_what_comes_later_is():
    there = [object()]
    set_aside()
    held = gc.get_freeze_count()
    later = [object()]
    looked_at = {id(one) for one in gc.get_objects()}
    assert id(there) not in looked_at
    assert id(later) in looked_at

    set_aside()
    assert gc.get_freeze_count() <= held  # a second worker of the process sets nothing aside


@pytest.mark.usefixtures("nothing_set_aside")
def test_who_has_switched_collection_off_has_nothing_set_aside():
    gc.disable()
    try:
        set_aside()
        assert not gc.get_freeze_count()
    finally:
        gc.enable()
