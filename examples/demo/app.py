"""The application, the same in the demo's worker and in its client."""

from __future__ import annotations

from pathlib import Path

from laneway import Laneway

from examples.demo.scratch import AGENT, DemoError, Framework, Scratch

__all__ = ["build_app"]


def build_app(root: Path, scratch: Scratch, model_name: str | None, framework: Framework) -> Laneway:
    """The application.

    Args:
        root: the folder that is asked about.
        scratch: where ledger and gates are.
        model_name: `openai:…` or `anthropic:…`; None for the scripted model.
        framework: what its agent is written with.

    Raises:
        DemoError: there is no such model, its key is missing, or the framework is not installed.
    """
    # Each is imported where it is used: LangChain is an extra of its own.
    if framework is Framework.PYDANTIC_AI:
        from examples.demo.agent import pydantic_adapter

        return Laneway(agents={AGENT: pydantic_adapter(root, scratch, model_name)})
    try:
        from examples.demo.graph import langchain_adapter
    except ModuleNotFoundError as error:
        raise DemoError(f"the demo needs {error.name} for FRAMEWORK=langchain: install laneway[langchain]") from None
    return Laneway(agents={AGENT: langchain_adapter(root, scratch, model_name)})
