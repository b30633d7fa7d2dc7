"""Each request is taken by a strict provider and fits its context, and what must be known is in it.

Here the last 60 turns are held in every way, and all 300 in one of them, which has to come out as the page has it; the
rest of the page is `python -m tests.conversation`. All 300 turns under each processor, without a wire, are in
tests/processors/test_conversation.py.
"""

from __future__ import annotations

import re

import pytest

from laneway.history.store import HistoryStore

from tests.conversation import script, table
from tests.conversation.arms import ARMS, Arm, serving
from tests.conversation.talk import talk
from tests.conversation.watcher import Watcher

SHORT = 60
KEEPING = [arm for arm in ARMS if arm.name != "nothing"]


@pytest.mark.parametrize("arm", KEEPING, ids=lambda arm: arm.key)
async def test_what_must_be_known_is_and_every_request_fits(store: HistoryStore, arm: Arm) -> None:
    watch = Watcher(arm, first=script.TURNS - SHORT)
    async with serving(arm) as (adapter, server):
        figures = await talk(adapter, server, store, turns=SHORT, reads=arm.reads, watch=watch)
    assert figures.turns == SHORT
    assert figures.rewrites >= 1 or "TextWindow" in arm.name, "the history had to be cut"
    assert watch.book_was_known == arm.reads


async def test_all_of_it_comes_out_as_the_page_has_it(store: HistoryStore) -> None:
    arm = KEEPING[0]
    async with serving(arm) as (adapter, server):
        figures = await talk(adapter, server, store, watch=Watcher(arm, first=0))
    assert figures.turns == script.TURNS
    assert table.row(arm, figures) in table.rows_on_page()


def test_the_page_has_a_row_for_each_way_and_none_over_the_limit() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.rows_on_page()]
    assert len(rows) == len(ARMS)
    for arm, cells in zip(ARMS, rows, strict=True):
        assert cells[0].startswith(arm.name)
        assert int(cells[5].replace(",", "")) <= script.LIMIT_TOKENS
        if arm.name == "nothing":
            assert int(cells[1]) < script.TURNS, "without any of them the provider refuses a request"
            continue
        assert int(cells[1]) == script.TURNS
        known, planted = map(int, re.findall(r"\d+", cells[8]))
        assert known == planted if arm.recent is None else known < planted
