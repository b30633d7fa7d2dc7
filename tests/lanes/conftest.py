"""Agents of both frameworks."""

from __future__ import annotations

import pytest

from tests.lanes.agents import FRAMEWORKS, Paced


@pytest.fixture(params=FRAMEWORKS)
def paced(request: pytest.FixtureRequest) -> Paced:
    """A paced agent of each framework: what uses it holds for both."""
    return Paced(request.param)
