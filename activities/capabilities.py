"""What adapters can do besides taking turns, as they declare it; and the refusal to use what one cannot do."""

from __future__ import annotations

from typing import Any, Literal, get_args

from laneway.errors import UnsupportedCapability

__all__ = ["CAPABILITIES", "Capability", "require"]

Capability = Literal[
    "history_processing",
    "native_compaction",
    "streaming",
    "budgets",
    "compaction",
    "hooks",
    "tool_hooks",
    "profiles",
    "delegation",
    "approval",
]
"""`history_processing`: lets processors edit what is sent. `native_compaction`: has its provider compact the history.
`streaming`: says what the model says as it comes. `budgets`: asks a turn's account before it spends. `compaction`: sums
up a lane's history on demand. `hooks`: calls hooks around model requests and tools. `profiles`: runs its agent under an
`AgentProfile`. `delegation`, `approval`: lets a step wait for other agents, and for people."""

CAPABILITIES: frozenset[str] = frozenset(get_args(Capability))
"""Every capability there is."""


def require(adapter: Any, capability: Capability, *, agent: str, what: str) -> None:
    """Refuse what an agent's adapter cannot do.

    Args:
        adapter: the adapter.
        capability: what is needed.
        agent: the agent's name.
        what: what asks for it, such as `history(processor=…)`.

    Raises:
        UnsupportedCapability: the adapter does not declare it.
    """
    if capability not in adapter.capabilities:
        has = ", ".join(sorted(adapter.capabilities)) or "none"
        raise UnsupportedCapability(
            f"{what} needs the capability {capability!r}, which agent {agent!r} does not have here (adapter "
            f"{adapter.shortname!r} has: {has}). Nothing was sent; leave it out, or use an agent that has it"
        )
