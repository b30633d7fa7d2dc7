"""Laneway: the place where long-running agents live.

Multi-turn agents of Pydantic AI, unchanged, each conversation lane a Temporal workflow, its native message history in
Redis or Valkey. What is exported here is imported when it is first used, and a framework only with
its adapter.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laneway.activities.adapter import RetryPolicy
    from laneway.activities.hooks import (
        AfterModelRequest,
        AfterTool,
        BeforeModelRequest,
        BeforeTool,
        Deny,
        Edit,
        Hooks,
        TurnEnd,
        UserPromptSubmit,
    )
    from laneway.activities.langchain_adapter import LangChainAdapter
    from laneway.activities.langchain_profile import GraphProfile
    from laneway.activities.profiles import AgentProfile
    from laneway.activities.pydantic_adapter import PydanticAdapter
    from laneway.activities.telemetry import Telemetry
    from laneway.answers import Pending
    from laneway.app import Laneway
    from laneway.client import LaneStatus, LanewayClient
    from laneway.conversations import Conversation
    from laneway.errors import (
        BudgetExceeded,
        HistoryProcessingError,
        HistoryProcessingValidationError,
        LanewayError,
        RequestTooLarge,
        ToolOutputTooLarge,
        TurnDenied,
    )
    from laneway.history.archival import HistoryArchiveSettings
    from laneway.history.budget import Headroom, RequestBudget
    from laneway.history.checkpoints import CheckpointRef
    from laneway.history.compaction import CompactionReport
    from laneway.history.context import (
        HistoryProcessor,
        HistoryProcessorCondition,
        HistoryProcessorContext,
        HistoryProcessorState,
    )
    from laneway.history.delegation import Delegation
    from laneway.history.groups import HistoryGroup
    from laneway.history.origins import HistoryOrigin
    from laneway.history.processors import (
        ClearToolResultsProcessor,
        LimitWarnerProcessor,
        SlidingWindowProcessor,
        SummarizationProcessor,
        create_sliding_window_processor,
        create_summarization_processor,
    )
    from laneway.history.records import EventKind, LaneEvent, TurnRecord, TurnUsage
    from laneway.history.requests import Answer, PendingRequest, approve, deny, failed
    from laneway.history.scopes import HistoryProcessingSettings
    from laneway.history.threads import TextWindow
    from laneway.local import LocalStack
    from laneway.settings import Settings
    from laneway.turns import Turn, TurnResult

_HOMES = {
    "AfterModelRequest": "laneway.activities.hooks",
    "AfterTool": "laneway.activities.hooks",
    "AgentProfile": "laneway.activities.profiles",
    "Answer": "laneway.history.requests",
    "BeforeModelRequest": "laneway.activities.hooks",
    "BeforeTool": "laneway.activities.hooks",
    "BudgetExceeded": "laneway.errors",
    "CheckpointRef": "laneway.history.checkpoints",
    "ClearToolResultsProcessor": "laneway.history.processors",
    "CompactionReport": "laneway.history.compaction",
    "Conversation": "laneway.conversations",
    "Delegation": "laneway.history.delegation",
    "Deny": "laneway.activities.hooks",
    "Edit": "laneway.activities.hooks",
    "EventKind": "laneway.history.records",
    "GraphProfile": "laneway.activities.langchain_profile",
    "Headroom": "laneway.history.budget",
    "HistoryArchiveSettings": "laneway.history.archival",
    "HistoryGroup": "laneway.history.groups",
    "HistoryOrigin": "laneway.history.origins",
    "HistoryProcessingError": "laneway.errors",
    "HistoryProcessingSettings": "laneway.history.scopes",
    "HistoryProcessingValidationError": "laneway.errors",
    "HistoryProcessor": "laneway.history.context",
    "HistoryProcessorCondition": "laneway.history.context",
    "HistoryProcessorContext": "laneway.history.context",
    "HistoryProcessorState": "laneway.history.context",
    "Hooks": "laneway.activities.hooks",
    "LaneEvent": "laneway.history.records",
    "LaneStatus": "laneway.client",
    "Laneway": "laneway.app",
    "LanewayClient": "laneway.client",
    "LanewayError": "laneway.errors",
    "LangChainAdapter": "laneway.activities.langchain_adapter",
    "LimitWarnerProcessor": "laneway.history.processors",
    "LocalStack": "laneway.local",
    "Pending": "laneway.answers",
    "PendingRequest": "laneway.history.requests",
    "PydanticAdapter": "laneway.activities.pydantic_adapter",
    "RequestBudget": "laneway.history.budget",
    "RequestTooLarge": "laneway.errors",
    "RetryPolicy": "laneway.activities.adapter",
    "Settings": "laneway.settings",
    "SlidingWindowProcessor": "laneway.history.processors",
    "SummarizationProcessor": "laneway.history.processors",
    "Telemetry": "laneway.activities.telemetry",
    "TextWindow": "laneway.history.threads",
    "ToolOutputTooLarge": "laneway.errors",
    "Turn": "laneway.turns",
    "TurnDenied": "laneway.errors",
    "TurnEnd": "laneway.activities.hooks",
    "TurnRecord": "laneway.history.records",
    "TurnResult": "laneway.turns",
    "TurnUsage": "laneway.history.records",
    "UserPromptSubmit": "laneway.activities.hooks",
    "approve": "laneway.history.requests",
    "create_sliding_window_processor": "laneway.history.processors",
    "create_summarization_processor": "laneway.history.processors",
    "deny": "laneway.history.requests",
    "failed": "laneway.history.requests",
}

__all__ = [
    "AfterModelRequest",
    "AfterTool",
    "AgentProfile",
    "Answer",
    "BeforeModelRequest",
    "BeforeTool",
    "BudgetExceeded",
    "CheckpointRef",
    "ClearToolResultsProcessor",
    "CompactionReport",
    "Conversation",
    "Delegation",
    "Deny",
    "Edit",
    "EventKind",
    "GraphProfile",
    "Headroom",
    "HistoryArchiveSettings",
    "HistoryGroup",
    "HistoryOrigin",
    "HistoryProcessingError",
    "HistoryProcessingSettings",
    "HistoryProcessingValidationError",
    "HistoryProcessor",
    "HistoryProcessorCondition",
    "HistoryProcessorContext",
    "HistoryProcessorState",
    "Hooks",
    "LaneEvent",
    "LaneStatus",
    "Laneway",
    "LanewayClient",
    "LanewayError",
    "LangChainAdapter",
    "LimitWarnerProcessor",
    "LocalStack",
    "Pending",
    "PendingRequest",
    "PydanticAdapter",
    "RequestBudget",
    "RequestTooLarge",
    "RetryPolicy",
    "Settings",
    "SlidingWindowProcessor",
    "SummarizationProcessor",
    "Telemetry",
    "TextWindow",
    "ToolOutputTooLarge",
    "Turn",
    "TurnDenied",
    "TurnEnd",
    "TurnRecord",
    "TurnResult",
    "TurnUsage",
    "UserPromptSubmit",
    "approve",
    "create_sliding_window_processor",
    "create_summarization_processor",
    "deny",
    "failed",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'laneway' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
