"""The pages whose examples make a program: it is run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from laneway import Settings

from tests.docs.pages import blocks

PAGES = ["hooks.md", "langgraph.md", "observability.md", "scopes.md"]


@pytest.mark.parametrize("page", PAGES)
async def test_the_examples_of_the_page_run(
    page: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As one module, in order, whose `main` is called with the way to the servers."""
    name = f"page_{page.removesuffix('.md')}"
    source = tmp_path / f"{name}.py"
    source.write_text("\n\n".join(blocks(page)))
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    await module.main(settings)
