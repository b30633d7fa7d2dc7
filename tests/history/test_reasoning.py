"""Reasoning that a model ties to its prefix, and records that only a provider can make."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.profiles.anthropic import anthropic_model_profile

from laneway.activities.pydantic_messages import binds_reasoning
from laneway.errors import HistoryProcessingValidationError
from laneway.history.groups import find_groups
from laneway.history.reasoning import release_bound_reasoning
from laneway.history.views import view_of

from tests.history.edits import DIALECT, Context, edit, entries_of, request_for


def user(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def signed(text: str, *parts: ModelResponsePart, signature: str | None = None) -> ModelResponse:
    thinking = ThinkingPart(f"about {text}", signature=signature or f"sig {text}", provider_name="anthropic")
    return ModelResponse(parts=[thinking, *(parts or (TextPart(text),))], provider_name="anthropic")


def history() -> list[ModelMessage]:
    plain = [user("one"), ModelResponse(parts=[TextPart("1")])]
    return [*plain, user("two"), signed("2"), user("three"), signed("3"), user("now")]


def kinds(messages: Any) -> list[list[str]]:
    return [[part.part_kind for part in message.parts] for message in messages]


async def test_an_edit_releases_what_it_invalidates_in_closed_cycles_by_name() -> None:
    outcome = await edit(request_for(history(), binds_reasoning=True), lambda ctx: ctx.messages[2:])
    assert kinds(outcome.messages) == [["user-prompt"], ["text"], ["user-prompt"], ["text"], ["user-prompt"]]
    assert outcome.receipt is not None
    names = outcome.receipt.released_reasoning
    assert len(set(names)) == 2
    assert all(name.startswith("anthropic:thinking:") for name in names)


async def test_reasoning_before_the_edit_stays_and_a_model_that_does_not_bind_keeps_all() -> None:
    def note(ctx: Context) -> list[ModelMessage]:
        return [*ctx.messages[:4], user("note"), *ctx.messages[4:]]

    outcome = await edit(request_for(history(), binds_reasoning=True), note)
    assert kinds(outcome.messages)[3] == ["thinking", "text"]
    assert [kind for kind in kinds(outcome.messages) if "thinking" in kind] == [["thinking", "text"]]
    unbound = await edit(request_for(history()), note)
    assert unbound.receipt is not None
    assert unbound.receipt.released_reasoning == ()


async def test_an_edit_before_reasoning_that_is_still_at_work_is_refused() -> None:
    running = [
        *history(),
        signed("now", ToolCallPart("stock", {}, "a")),
        ModelRequest(parts=[ToolReturnPart("stock", 1, "a")]),
    ]
    request = request_for(running, request_index=2, binds_reasoning=True)
    with pytest.raises(HistoryProcessingValidationError) as refused:
        await edit(request, lambda ctx: ctx.messages[2:])
    assert (refused.value.rule, refused.value.index) == ("bound_reasoning", 7)


def test_changed_instructions_release_from_the_front_and_never_in_the_open_cycle() -> None:
    messages = history()
    released = release_bound_reasoning(DIALECT, messages, entries_of(messages), request_index=1)
    assert len(released.released) == 2
    assert not any("thinking" in kind for kind in kinds(released.messages))
    assert kinds(messages)[3] == ["thinking", "text"], "the stored history was touched"
    running = [
        *messages,
        signed("now", ToolCallPart("stock", {}, "a")),
        ModelRequest(parts=[ToolReturnPart("stock", 1, "a")]),
    ]
    with pytest.raises(HistoryProcessingValidationError):
        release_bound_reasoning(DIALECT, running, entries_of(running), request_index=2)


def test_an_answer_that_was_nothing_but_reasoning_goes_with_it() -> None:
    messages: list[ModelMessage] = [user("one"), ModelResponse(parts=[signed("x").parts[0]]), user("now")]
    released = release_bound_reasoning(DIALECT, messages, entries_of(messages), request_index=1)
    assert kinds(released.messages) == [["user-prompt"], ["user-prompt"]]


def test_the_profile_says_which_models_bind() -> None:
    assert binds_reasoning(anthropic_model_profile("claude-sonnet-5-5") or {})
    assert not binds_reasoning(anthropic_model_profile("claude-sonnet-4-5") or {})


@pytest.mark.parametrize(
    ("part", "reasons"),
    [
        (ThinkingPart("t", signature="s", provider_name="anthropic"), ("provider",)),
        (ThinkingPart("", id="redacted_thinking", signature="s", provider_name="anthropic"), ("provider",)),
        (ThinkingPart("t", signature="", provider_name="anthropic"), ()),
        (ThinkingPart("t"), ()),
        (ThinkingPart("t", id="reasoning_content", provider_name="deepseek"), ()),
        (ThinkingPart("", id="rs_1", signature="enc", provider_name="openai"), ("provider",)),
        (ThinkingPart("", id="rs_1", provider_name="openai"), ("provider",)),
        (TextPart("t", provider_name="google", provider_details={"thought_signature": "c2ln"}), ("provider",)),
        (TextPart("t", id="msg_1", provider_name="openai"), ()),
        (NativeToolReturnPart("web_search", {"hits": 1}, "n", provider_name="openai"), ("provider",)),
        (NativeToolCallPart("web_search", {}, "n", provider_name="openai"), ("unfinished", "provider")),
        (CompactionPart("before", provider_name="anthropic"), ("checkpoint",)),
    ],
)
def test_records_that_only_a_provider_makes_protect_their_group(
    part: ModelResponsePart, reasons: tuple[str, ...]
) -> None:
    assert reasons_of([user("one"), ModelResponse(parts=[part, TextPart("1")]), user("now")]) == reasons


@pytest.mark.parametrize("state", ["suspended", "interrupted", "incomplete"])
def test_an_answer_that_was_cut_off_or_paused_protects_its_group(state: Any) -> None:
    cut = ModelResponse(parts=[TextPart("1")], state=state)
    assert reasons_of([user("one"), cut, user("now")]) == ("unfinished",)


def test_calls_that_wait_for_an_answer_protect_their_group() -> None:
    waiting = ModelResponse(parts=[ToolCallPart("approve", {}, "a")])
    assert reasons_of([user("one"), waiting, user("now")]) == ("unfinished",)


def reasons_of(messages: list[ModelMessage]) -> tuple[str, ...]:
    view = view_of(DIALECT, messages, entries_of(messages), request_index=1)
    return find_groups(DIALECT, view)[0].protected_reasons


def test_a_summary_that_the_application_wrote_stands_alone_and_is_protected() -> None:
    parts: list[ModelRequestPart] = [CompactionPart("what came before"), UserPromptPart("one")]
    messages: list[ModelMessage] = [ModelRequest(parts=parts), ModelResponse(parts=[TextPart("1")]), user("now")]
    view = view_of(DIALECT, messages, entries_of(messages), request_index=1)
    groups = find_groups(DIALECT, view)
    assert [group.protected_reasons for group in groups] == [("checkpoint",), (), ("current",)]
