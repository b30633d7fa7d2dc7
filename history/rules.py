"""The rules that an edited or imported history must keep, and how breaking one is reported."""

from __future__ import annotations

from enum import StrEnum
from typing import NoReturn

from laneway.errors import HistoryProcessingValidationError

__all__ = ["EditRule", "refuse"]


class EditRule(StrEnum):
    """The closed set of rules. The value is what `HistoryProcessingValidationError.rule` carries."""

    NOT_A_SEQUENCE = "not_a_sequence"
    EMPTY = "empty"
    NOT_NATIVE = "not_native"
    ORPHAN_RESULT = "orphan_result"
    ORPHAN_CALL = "orphan_call"
    REUSED_CALL_ID = "reused_call_id"
    PARTIAL_GROUP = "partial_group"
    ORDER_CHANGED = "order_changed"
    DUPLICATE_GROUP = "duplicate_group"
    CURRENT_REQUEST_MISSING = "current_request_missing"
    PROTECTED_REMOVED = "protected_removed"
    PROTECTED_CHANGED = "protected_changed"
    CROSSED_PROTECTED = "crossed_protected"
    FABRICATED_RECORD = "fabricated_record"
    SYSTEM_REPLACED = "system_replaced"
    NOT_TEXT = "not_text"
    EMPTY_TEXT = "empty_text"
    OPENS_WITH_MODEL = "opens_with_model"
    BOUND_REASONING = "bound_reasoning"


_WHAT_TO_DO: dict[EditRule, str] = {
    EditRule.NOT_A_SEQUENCE: "return a list or tuple of native messages; is a `return` or an `await` missing?",
    EditRule.EMPTY: "a history is never empty; the current request at least has to stay",
    EditRule.NOT_NATIVE: "return the framework's own message objects, not dictionaries or text",
    EditRule.ORPHAN_RESULT: "this tool result has no call before it; keep or drop whole groups",
    EditRule.ORPHAN_CALL: "a tool call needs its result right after it; keep or drop whole groups",
    EditRule.REUSED_CALL_ID: "an earlier call has this id; give each call its own, or import with repair=True",
    EditRule.PARTIAL_GROUP: "a group of `ctx.groups` stays whole and unchanged, or goes whole or for text",
    EditRule.ORDER_CHANGED: "the order inside a group is fixed",
    EditRule.DUPLICATE_GROUP: "a group may stand in the history only once",
    EditRule.CURRENT_REQUEST_MISSING: "the current request has to stay whole and last",
    EditRule.PROTECTED_REMOVED: "this message is protected (see `group.protected_reasons`) and has to stay",
    EditRule.PROTECTED_CHANGED: "this message is protected (see `group.protected_reasons`) and has to stay as it is",
    EditRule.CROSSED_PROTECTED: "groups may change places only between two protected groups, not across one",
    EditRule.FABRICATED_RECORD: "only plain text may be added; exchanges, reasoning and provider ids are records",
    EditRule.SYSTEM_REPLACED: "a processor may not write system messages; use a user or model message",
    EditRule.NOT_TEXT: "a processor may add plain text only",
    EditRule.EMPTY_TEXT: "a text that a processor adds needs at least one visible character",
    EditRule.OPENS_WITH_MODEL: "the first message after the system text has to be the user's",
    EditRule.BOUND_REASONING: "the model ties this reasoning to all before it; edit before the turn's first request",
}


def refuse(rule: EditRule, index: int | None, *, subject: str = "the history processor's result") -> NoReturn:
    """Raise the error for a broken rule.

    Raises:
        HistoryProcessingValidationError: always.
    """
    where = "" if index is None else f" at message {index}"
    raise HistoryProcessingValidationError(
        f"{subject} breaks the rule {rule.value!r}{where}: {_WHAT_TO_DO[rule]}", rule=rule.value, index=index
    )
