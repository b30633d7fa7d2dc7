"""LangGraph's own conformance suite, whole, on every kind of server. Its report is printed."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import redirect_stdout
from uuid import uuid4

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES

from laneway.langgraph import RedisSaver


async def test_every_capability_passes(server_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    @checkpointer_test(name="RedisSaver")
    async def savers() -> AsyncGenerator[BaseCheckpointSaver[int], None]:
        async with RedisSaver.from_url(server_url, prefix=f"test-{uuid4().hex[:12]}") as saver:
            yield saver

    report = await validate(savers)

    # Not to the standard output, which belongs to the test runner's own talk where tests run in several processes.
    with capsys.disabled(), redirect_stdout(sys.stderr):
        report.print_report()
    assert {name for name, result in report.results.items() if result.passed} == {one.value for one in ALL_CAPABILITIES}
    assert sum(result.tests_passed for result in report.results.values()) == 81
