"""What the scopes around a call come to, as a step is given it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from laneway.activities.hooks import Hooks
from laneway.activities.profiles import RunProfile
from laneway.history.scopes import CompactionInForce, HistoryProcessingSettings

__all__ = ["ScopeInForce"]


@dataclass(frozen=True)
class ScopeInForce:
    """What holds for a turn beside its adapter's own settings.

    Attributes:
        processing: what the scopes say about history processing; the adapter's own settings are outside of it.
        compaction: the provider compacts the history; None where it does not.
        run: what profiles change about how the agent runs.
        hooks: the scopes' hooks, outermost first.
        is_quiet: the call was made inside a hook, so no hook is called, the adapter's and the application's included.
    """

    processing: HistoryProcessingSettings[Any] = field(default_factory=HistoryProcessingSettings[Any])
    compaction: CompactionInForce | None = None
    run: RunProfile = field(default_factory=RunProfile)
    hooks: tuple[Hooks, ...] = ()
    is_quiet: bool = False
