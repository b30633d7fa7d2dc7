"""What hooks are told of a Pydantic AI run."""

from __future__ import annotations

from typing import Any

from pydantic_ai.run import AgentRun

from laneway.activities.hooks import AfterModelRequest
from laneway.activities.pydantic_growth import text_of
from laneway.activities.turn_hooks import TurnHooks

__all__ = ["tell_answer"]


async def tell_answer(run: AgentRun[Any, Any], node: Any, hooks: TurnHooks, *, step: int) -> None:
    """Tell of an answer, which is staged. One that was told of before is not told of again.

    Raises:
        HookError: a hook failed.
    """
    if not hooks.has("after_model_request"):
        return
    index, response = run.ctx.state.run_step, node.model_response
    event = AfterModelRequest(
        **hooks.place,
        step=step,
        request_index=index,
        model_id=run.ctx.deps.model.model_id,
        text=text_of(response),
        tools=tuple(call.tool_name for call in response.tool_calls),
    )
    await hooks.ask("after_model_request", event, key=str(index))
