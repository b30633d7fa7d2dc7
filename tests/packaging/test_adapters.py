"""An agent framework is imported by its own adapter and by nothing else, so that it is loaded only when it is used."""

import re

import grimp
import pytest

PYDANTIC = r"laneway\.activities\.pydantic_\w+"
LANGCHAIN = r"laneway\.activities\.langchain_\w+|laneway\.langgraph\w*(\.\w+)*"
MODEL_CLIENTS = f"{PYDANTIC}|{LANGCHAIN}"


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        "laneway", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


@pytest.mark.parametrize(
    ("framework", "adapters"),
    [
        ("pydantic_ai", PYDANTIC),
        ("pydantic_graph", PYDANTIC),
        ("langchain", LANGCHAIN),
        ("langchain_anthropic", LANGCHAIN),
        ("langchain_core", LANGCHAIN),
        ("langchain_openai", LANGCHAIN),
        ("langgraph", LANGCHAIN),
        ("anthropic", MODEL_CLIENTS),
        ("mcp", MODEL_CLIENTS),
        ("openai", MODEL_CLIENTS),
    ],
)
def test_a_framework_is_imported_by_its_adapter_only(graph: grimp.ImportGraph, framework: str, adapters: str) -> None:
    importers = graph.find_modules_that_directly_import(framework) if framework in graph.modules else set()
    assert {module for module in importers if not re.fullmatch(adapters, module)} == set()
