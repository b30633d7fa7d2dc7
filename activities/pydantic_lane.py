"""A Pydantic AI agent as a lane runs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, cast

from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.models import Model, infer_model
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import UsageLimits
from pydantic_core import PydanticSerializationError
from typing_extensions import TypeVar

from laneway.activities.arguments import AdapterArguments
from laneway.activities.framing import FramingMemory
from laneway.activities.outputs import OutputForm
from laneway.activities.pydantic_contract import output_types_of
from laneway.activities.pydantic_editing import ties_reasoning
from laneway.activities.pydantic_framing import RequestFraming
from laneway.activities.pydantic_models import can_stream
from laneway.activities.pydantic_servers import ToolServers
from laneway.activities.retries import SerializationFailed

__all__ = ["LaneAgent"]

DepsT = TypeVar("DepsT", default=None)


@dataclass(frozen=True)
class LaneAgent(Generic[DepsT]):
    """An agent, and how a lane runs it.

    Attributes:
        agent: the agent.
        given: the adapter's arguments.
        owner: the adapter.
        deps: the dependencies of every run.
        deps_factory: makes them for each step, in place of `deps`.
        usage_limits: the limits of each turn.
        delegate_tools: the tools by which it hands work to others.
        framings: what each lane's last request carried beside its history.
        servers: the tool servers that a worker holds connections to.
    """

    agent: AbstractAgent[DepsT, Any]
    given: AdapterArguments
    owner: object
    deps: DepsT
    deps_factory: Callable[[str], Any] | None
    usage_limits: UsageLimits | None
    delegate_tools: Sequence[AbstractToolset[Any]]
    framings: FramingMemory[RequestFraming] = field(default_factory=FramingMemory[RequestFraming])
    servers: ToolServers = field(default_factory=ToolServers)

    @property
    def model(self) -> Model:
        """The agent's model, made from its name where it has only that."""
        return infer_model(cast("Model | str", self.agent.model))

    @property
    def streams(self) -> bool:
        """Whether model requests are streamed."""
        if self.given.stream is not None:
            return self.given.stream
        model = self.agent.model
        return not isinstance(model, Model) or can_stream(model)

    @property
    def may_tie_reasoning(self) -> bool:
        """Whether the model may be one that ties its reasoning to everything before it."""
        model = self.agent.model
        return not isinstance(model, Model) or ties_reasoning(model)

    @cached_property
    def outputs(self) -> OutputForm:
        """The stored form of the agent's outputs."""
        agent = self.agent
        while isinstance(agent, WrapperAgent):  # which has the outputs of what it wraps, and not its context
            agent = agent.wrapped
        context: object = getattr(agent, "_validation_context", None)
        return OutputForm(output_types_of(self.agent), context=None if callable(context) else context)

    def encode_output(self, output: object) -> tuple[str, str | None]:
        """An output as JSON, and the name of its type.

        Raises:
            SerializationFailed: it has no JSON form.
        """
        try:
            return self.outputs.encode(output)
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            raise SerializationFailed(
                f"the output, a {type(output).__name__}, cannot be stored: {error}. Outputs must be JSON values, "
                "pydantic models or dataclasses"
            ) from error

    async def make_deps(self, conversation: str) -> DepsT:
        """The dependencies of a step's run."""
        if self.deps_factory is None:
            return self.deps
        made = self.deps_factory(conversation)
        return cast("DepsT", await made if inspect.isawaitable(made) else made)
