"""No variable of the machine that runs the tests may change what they see."""

from __future__ import annotations

import os

import pytest

from laneway.settings import ENV_PREFIX


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(ENV_PREFIX)]:
        monkeypatch.delenv(name)
