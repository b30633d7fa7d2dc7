"""What the adapter of graphs alone takes, checked where it is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast

from laneway.errors import InvalidArgument
from laneway.history.given import check_callable, check_flag, check_kind, check_text, listed

__all__ = ["check_graph_arguments"]

_WHO: Final = "LangChainAdapter"


def check_graph_arguments(
    *,
    messages_key: object,
    model_nodes: object,
    config: object,
    context_factory: object,
    output_key: object,
    contract: object,
    binds_reasoning: object,
) -> None:
    """Refuse what a graph's adapter cannot work with. The arguments are the adapter's.

    Raises:
        InvalidArgument: one is of another type than it has to be; the error says what to give.
    """
    check_text(f"{_WHO}: messages_key", messages_key, give="the name of the channel that holds the messages")
    if output_key is not None:
        check_text(f"{_WHO}: output_key", output_key, give="the name of a channel, or None for the last message")
    if model_nodes is not None and not isinstance(model_nodes, str):
        listed(
            f"{_WHO}: model_nodes",
            model_nodes,
            "a list of names of nodes, or None for those in which a model is found",
            is_one=lambda one: isinstance(one, str),
        )
    check_kind(f"{_WHO}: config", config, Mapping, "a dict, as `invoke` takes it, or None")
    check_callable(f"{_WHO}: context_factory", context_factory, "a function from a conversation's id to the context")
    check_flag(f"{_WHO}: binds_reasoning", binds_reasoning, optional=True)
    check_kind(f"{_WHO}: contract", contract, Mapping, "a dict of JSON values, or None for what the graph is made of")
    try:
        json.dumps(dict(cast("Mapping[str, object]", contract or {})))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{_WHO}: contract is {contract!r}: give JSON values ({error})") from None
