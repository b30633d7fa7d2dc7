"""Whether code of the user's runs between the end of a graph's task and the end of its step.

What a task wrote is kept in the step's journal as soon as it is done, since what comes next may fail, or take the
process with it: other tasks, reducers, hooks. Where nothing comes next but LangGraph's own code and the write that
stages or commits the step, that write keeps it as well.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# LangGraph's packages are typed, but have no marker that says so, and its graphs have open type parameters.

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from langgraph._internal._constants import NO_WRITES, PULL
from langgraph.channels.any_value import AnyValue
from langgraph.channels.base import BaseChannel
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.channels.last_value import LastValue, LastValueAfterFinish
from langgraph.channels.named_barrier_value import NamedBarrierValue, NamedBarrierValueAfterFinish
from langgraph.channels.topic import Topic
from langgraph.channels.untracked_value import UntrackedValue

from laneway.activities.langchain_graphs import Graph

__all__ = ["is_of_a_node", "quiet_channels"]

_PLAIN: Final = frozenset(
    {
        AnyValue,
        EphemeralValue,
        LastValue,
        LastValueAfterFinish,
        NamedBarrierValue,
        NamedBarrierValueAfterFinish,
        Topic,
        UntrackedValue,
    }
)
_TRUSTED: Final = frozenset({"_operator", "langchain", "langchain_core", "langgraph", "operator"})
_NODE_PATH: Final = f"~{PULL}"


def quiet_channels(graph: Graph, config: Mapping[str, Any]) -> frozenset[str]:
    """The channels that take up what a task wrote without code of the user's.

    Args:
        graph: the graph.
        config: LangChain's configuration of its runs.

    Returns:
        their names; none where code of the user's runs after each task: callbacks, a cache, schemas of nodes that check
        their input.
    """
    heard = config.get("callbacks") or (graph.config or {}).get("callbacks")
    if heard or graph.cache is not None or any(node.mapper is not None for node in graph.nodes.values()):
        return frozenset()
    return frozenset([NO_WRITES, *(name for name, one in graph.channels.items() if _is_quiet(one))])


def is_of_a_node(path: str) -> bool:
    """Whether a task is a node's own, by its path: not one that was sent, or that a node or a task has called."""
    return path.startswith(_NODE_PATH)


def _is_quiet(channel: object) -> bool:
    if isinstance(channel, BinaryOperatorAggregate):
        return _is_trusted(channel.operator)
    if isinstance(channel, DeltaChannel):
        return _is_trusted(channel.reducer)
    return isinstance(channel, BaseChannel) and type(channel) in _PLAIN


def _is_trusted(reducer: object) -> bool:
    while isinstance(reducer, partial):
        reducer = reducer.func
    return str(getattr(reducer, "__module__", "")).partition(".")[0] in _TRUSTED
