"""What comes before every message, watched for the models that tie their reasoning to it.

The hard fact: the system text and the tools of a graph's requests are made inside its nodes, and can change with every
deploy; newer Claude models refuse, for good, reasoning that was signed under others. What a request will carry is known
when LangChain tells its callbacks of it, which is before it is sent and too late to change it. So a request that would
be refused is stopped there, the reasoning of finished cycles is released from the history, and the superstep, of which
nothing has been asked yet, runs again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any, Final, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from laneway.activities.langchain_editing import DIALECT, NodeRequest, release
from laneway.activities.langchain_recorded import FIRST_RECORD
from laneway.errors import HistoryProcessingValidationError
from laneway.history.editing import EditOutcome
from laneway.history.model_calls import CallJournal
from laneway.history.prefix import RELEASE
from laneway.history.rules import EditRule

__all__ = ["PrefixChanged", "PrefixWatch", "is_stale", "mark_stale", "prefix_of", "released"]


_KEY: Final = "prefix"


class PrefixChanged(BaseException):
    """A request was stopped before it was sent: it carries reasoning that what is before it no longer fits.

    Not an `Exception`, which nodes, middleware and retry policies take for the model's failure.

    Args:
        prefix: what the request would have carried before its messages, by its digest.
    """

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self.prefix = prefix


class PrefixWatch(BaseCallbackHandler):
    """Compares what model requests carry before their messages with what the history's reasoning was signed under.

    Args:
        before: the digest of what it was signed under; None where that is not known.
        bound: the names of the reasoning blocks in the history.
    """

    raise_error = True
    run_inline = False  # LangChain forgets to tell inline handlers that come after one that raises

    def __init__(self, before: str | None, bound: Collection[str]) -> None:
        super().__init__()
        self._before = before
        self._bound = frozenset(bound)
        self._asked: dict[UUID, str] = {}
        self._signed: dict[str, str] = {}

    def after(self, messages: Collection[BaseMessage]) -> str | None:
        """The digest of what the newest reasoning of a history was signed under."""
        prefix = self._before
        for message in messages:
            for name in DIALECT.bound_reasoning(message):
                prefix = self._signed.get(name, prefix)
        return prefix

    # What LangChain calls ---------------------------------------------------------------------------------------------

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        parameters: Mapping[str, Any] = kwargs.get("invocation_params") or {}
        for request in messages:
            prefix = self._asked[run_id] = prefix_of(request, parameters.get("tools"))
            if self._before in (None, prefix) or _asks_to_drop(parameters):
                continue
            if any(name in self._bound for message in request for name in DIALECT.bound_reasoning(message)):
                raise PrefixChanged(prefix)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        prefix = self._asked.pop(run_id, None)
        for generations in response.generations:
            for generation in generations:
                if prefix is not None and isinstance(generation, ChatGeneration):
                    self._signed.update(dict.fromkeys(DIALECT.bound_reasoning(generation.message), prefix))


def is_stale(journal: CallJournal) -> bool:
    """Whether an attempt at the step has found that the history's reasoning no longer fits."""
    return journal.finished(_KEY) is not None


async def mark_stale(journal: CallJournal, changed: PrefixChanged) -> None:
    """Keep for each further attempt at the step that the history's reasoning no longer fits.

    Raises:
        HistoryProcessingValidationError: it was released already, and what is left does not fit either; or other tasks
            of the superstep have finished, which were given the history as it was.
    """
    if is_stale(journal) or journal.finished(FIRST_RECORD) is not None:
        raise _refused(None)
    await journal.finish(_KEY, changed.prefix.encode())


def prefix_of(messages: Collection[BaseMessage], tools: object) -> str:
    """A digest of what a request carries before its messages: its opening system text and its tools."""
    digest = blake2b(digest_size=8)
    for message in messages:
        if not isinstance(message, SystemMessage):
            break
        digest.update(DIALECT.content(message))
    digest.update(b"\0" + json.dumps(tools, sort_keys=True, default=repr).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def released(request: NodeRequest, *, owner: object) -> EditOutcome[BaseMessage]:
    """The history of a request without the reasoning of finished cycles.

    Raises:
        HistoryProcessingValidationError: the cycle that runs holds such reasoning (rule `bound_reasoning`).
    """
    try:
        return release(request, owner=owner, name=RELEASE)
    except HistoryProcessingValidationError as error:
        raise _refused(error.index) from error


def _refused(index: int | None) -> HistoryProcessingValidationError:
    where = "the history" if index is None else f"message {index}"
    return HistoryProcessingValidationError(
        "the system text or the tools are not those that this turn began with, and the model ties the reasoning of "
        f"{where} to them: submit the turn again, or have the provider drop the reasoning: "
        "ChatAnthropic(thinking={'type': 'adaptive', 'block_binding': {'prefix_mismatch_behavior': 'drop_block'}})",
        rule=EditRule.BOUND_REASONING.value,
        index=index,
    )


def _asks_to_drop(parameters: Mapping[str, Any]) -> bool:
    """Whether the caller has the provider drop what no longer fits."""
    thinking = cast("Mapping[str, Any]", parameters.get("thinking") or {})
    binding = cast("Mapping[str, Any]", thinking.get("block_binding") or {})
    return binding.get("prefix_mismatch_behavior") == "drop_block"
