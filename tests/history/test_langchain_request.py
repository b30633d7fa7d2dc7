"""What a model node is given for one request, in place of what is stored; ids; what a provider has measured."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from laneway.activities.journal import ToolJournal
from laneway.activities.langchain_codec import MessageCodec
from laneway.activities.langchain_editing import NodeRequest, describe, edit, measured, stamped
from laneway.activities.langchain_messages import LangChainDialect
from laneway.activities.langchain_recorded import edit_once
from laneway.activities.langchain_request import continuation_of, live_after, request_form
from laneway.history.context import HistoryProcessorContext, HistoryProcessorState
from laneway.history.origins import EntryMetadata, HistoryOrigin
from laneway.history.scopes import HistoryProcessingInForce

DIALECT = LangChainDialect()
BAD: Any = {"id": "bad", "name": "look", "args": "{", "error": "unreadable"}
Context = HistoryProcessorContext[BaseMessage]


def calling(*ids: str, **options: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"id": one, "name": "look", "args": {}} for one in ids], **options)


def result(call: str, text: str = "seen") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call, name="look")


def answered(response_id: str, text: str = "hi") -> AIMessage:
    return AIMessage(text, response_metadata={"id": response_id, "model_name": "gpt-5"})


def calls_of(messages: list[BaseMessage]) -> list[Any]:
    """The ids of calls and results, in order."""
    found: list[Any] = []
    for message in messages:
        if isinstance(message, AIMessage):
            found += [call["id"] for call in message.tool_calls]
        elif isinstance(message, ToolMessage):
            found.append(f"={message.tool_call_id}")
    return found


# What is sent ---------------------------------------------------------------------------------------------------------


def test_a_history_that_can_be_sent_is_sent_as_it_is() -> None:
    messages = [HumanMessage("a"), calling("x"), result("x"), AIMessage("b"), HumanMessage("c")]
    form = request_form(messages)
    assert form.repairs == ()
    assert all(one is other for one, other in zip(form.messages, messages, strict=True))


@pytest.mark.parametrize(
    ("block", "metadata"),
    [
        ({"type": "thinking", "thinking": "hm"}, {}),
        ({"type": "thinking", "thinking": "hm", "signature": ""}, {"model_provider": "anthropic"}),
        ({"type": "reasoning", "reasoning": "hm"}, {"model_provider": "anthropic", "output_version": "v1"}),
        ({"type": "redacted_thinking"}, {"model_provider": "anthropic"}),
    ],
)
def test_thinking_without_a_signature_is_left_out_of_the_request_alone(block: Any, metadata: dict[str, Any]) -> None:
    answer = AIMessage([block, {"type": "text", "text": "b"}], response_metadata=metadata, id="a1")
    form = request_form([HumanMessage("a"), answer, HumanMessage("c")])
    assert [(repair.kind, repair.index) for repair in form.repairs] == [("reasoning_left_out", 1)]
    assert form.messages[1].content == [{"type": "text", "text": "b"}]
    assert form.messages[1].id == "a1"
    assert len(answer.content) == 2, "what is stored was changed"


def test_signed_thinking_and_the_reasoning_of_others_is_sent() -> None:
    messages: list[BaseMessage] = [
        HumanMessage("a"),
        AIMessage([{"type": "thinking", "thinking": "hm", "signature": "s"}, "b"]),
        AIMessage([{"type": "reasoning", "id": "rs_1", "summary": []}], response_metadata={"model_provider": "openai"}),
        AIMessage("d", additional_kwargs={"reasoning_content": "hm"}),
        HumanMessage("c"),
    ]
    assert request_form(messages).repairs == ()


def test_calls_that_share_an_id_are_told_apart_within_an_answer_and_across() -> None:
    messages = [
        HumanMessage("a"),
        calling("x", "x"),
        result("x", "one"),
        result("x", "two"),
        HumanMessage("b"),
        calling("x", "y"),
        result("y"),
        result("x", "three"),
        HumanMessage("c"),
    ]
    form = request_form(messages)
    assert calls_of(form.messages) == ["x", "x-2", "=x", "=x-2", "x-3", "y", "=y", "=x-3"]
    assert [message.content for message in form.messages[2:4]] == ["one", "two"]
    assert {repair.kind for repair in form.repairs} == {"call_renamed"}
    assert calls_of(messages) == ["x", "x", "=x", "=x", "x", "y", "=y", "=x"]


def test_a_result_that_names_a_call_as_it_was_sent_answers_it() -> None:
    """As of a node that asks its model and runs its tools itself."""
    messages = [HumanMessage("a"), calling("x", "x"), result("x", "one"), result("x-2", "two"), HumanMessage("b")]
    assert calls_of(request_form(messages).messages) == ["x", "x-2", "=x", "=x-2"]


def test_a_renamed_call_is_renamed_wherever_it_stands() -> None:
    blocks: list[Any] = [
        {"type": "tool_use", "id": "x", "name": "look", "input": {"q": 1}},
        {"type": "tool_use", "id": "x", "name": "look", "input": {"q": 2}},
    ]
    answer = calling("x", "x").model_copy(update={"content": blocks})
    form = request_form([HumanMessage("a"), answer, result("x"), result("x"), HumanMessage("b")])
    sent: Any = form.messages[1].content
    assert [block["id"] for block in sent] == ["x", "x-2"]
    assert [block["input"]["q"] for block in sent] == [1, 2]


def test_a_call_that_nothing_runs_is_answered_right_after_the_answer_that_made_it() -> None:
    answer = calling("x").model_copy(update={"invalid_tool_calls": [BAD]})
    form = request_form([HumanMessage("a"), answer, result("x"), HumanMessage("b")])
    assert [type(message).__name__ for message in form.messages] == [
        "HumanMessage",
        "AIMessage",
        "ToolMessage",
        "ToolMessage",
        "HumanMessage",
    ]
    closed = form.messages[3]
    assert isinstance(closed, ToolMessage)
    assert (closed.tool_call_id, closed.status) == ("bad", "error")
    assert [(repair.kind, repair.index, repair.name) for repair in form.repairs] == [("call_closed", 1, "bad")]
    # A graph of its own may answer it.
    assert request_form([HumanMessage("a"), answer, result("x"), result("bad"), HumanMessage("b")]).repairs == ()


def test_a_call_that_nothing_runs_is_answered_at_the_end_of_a_history_too() -> None:
    form = request_form([HumanMessage("a"), AIMessage("", invalid_tool_calls=[BAD])])
    assert isinstance(form.messages[-1], ToolMessage)


def test_an_open_call_of_a_tool_is_left_to_the_graph() -> None:
    """It is no fault of LangChain's: the provider says what is wrong."""
    messages = [HumanMessage("a"), calling("x"), HumanMessage("b")]
    assert request_form(messages).repairs == ()


@st.composite
def lines(draw: st.DrawFn) -> list[BaseMessage]:
    """Histories with few ids for many calls."""
    ids = st.sampled_from(["x", "y", "x-2"])
    messages: list[BaseMessage] = []
    for _ in range(draw(st.integers(1, 4))):
        messages.append(HumanMessage("q"))
        for made in draw(st.lists(st.lists(ids, min_size=1, max_size=3), max_size=2)):
            answer = calling(*made)
            if draw(st.booleans()):
                answer = answer.model_copy(update={"invalid_tool_calls": [{**BAD, "id": draw(ids)}]})
            messages.append(answer)
            messages += [result(one, f"{number}") for number, one in enumerate(made)]
        messages.append(AIMessage("a"))
    return [*messages, HumanMessage("q")]


@given(lines())
def test_the_form_of_any_history_pairs_each_call_with_its_own_result(messages: list[BaseMessage]) -> None:
    """Ids are unique, results follow their call and keep its order, and the form of the form is itself."""
    form = request_form(messages)
    used: set[str] = set()
    open_calls: list[str] = []
    for message in form.messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in open_calls
            open_calls.remove(message.tool_call_id)
            continue
        assert open_calls == []
        if isinstance(message, AIMessage):
            open_calls = [str(call["id"]) for call in [*message.tool_calls, *message.invalid_tool_calls]]
            assert not used & set(open_calls)
            assert len(set(open_calls)) == len(open_calls)
            used |= set(open_calls)
    assert [m.content for m in form.messages if m.type != "tool"] == [m.content for m in messages if m.type != "tool"]
    again = request_form(form.messages)
    assert again.repairs == ()


@given(lines(), st.integers(0, 12))
def test_the_form_of_a_beginning_is_the_beginning_of_the_form(messages: list[BaseMessage], cut: int) -> None:
    """What was sent once is sent the same again: prompt caches hold, and signed thinking stays with its prefix."""
    ends = [index for index, message in enumerate(messages) if isinstance(message, HumanMessage)]
    end = ends[cut % len(ends)] + 1
    content = [DIALECT.content(message) for message in request_form(messages[:end]).messages]
    assert [DIALECT.content(m) for m in request_form(messages).messages][: len(content)] == content


# Response ids ---------------------------------------------------------------------------------------------------------


def test_a_response_id_from_before_a_rewrite_is_not_continued_from() -> None:
    messages = [HumanMessage("a"), answered("resp_1"), HumanMessage("b"), answered("resp_2"), HumanMessage("c")]
    assert continuation_of(messages) == "resp_2"
    assert continuation_of(messages, live=2) == "resp_2"
    assert continuation_of(messages, live=4) is None

    form = request_form(messages, live=2)
    assert form.messages[1].response_metadata == {"model_name": "gpt-5"}
    assert form.messages[3] is messages[3]
    assert [(repair.kind, repair.index, repair.name) for repair in form.repairs] == [
        ("continuation_dropped", 1, "resp_1")
    ]
    assert messages[1].response_metadata["id"] == "resp_1"
    assert continuation_of(request_form(messages, live=4).messages) is None


def test_ids_that_are_no_openai_responses_stay() -> None:
    messages = [HumanMessage("a"), answered("chatcmpl-1"), answered("msg_1"), HumanMessage("b")]
    assert request_form(messages, live=3).repairs == ()
    assert continuation_of(messages) is None


def test_whoever_changes_a_history_ends_what_providers_remember_of_it() -> None:
    before = [HumanMessage("a", id="1"), answered("resp_1"), HumanMessage("b", id="3")]
    grown = [*before, answered("resp_2")]
    assert live_after(before, grown) == 0
    assert live_after(before, [message.model_copy() for message in grown], live=1) == 1
    trimmed = grown[2:]
    assert live_after(before, trimmed) == 2
    changed = [HumanMessage("other", id="1"), *grown[1:]]
    assert live_after(before, changed, live=2) == 4
    assert live_after(before, before[:-1]) == 2


# Ids ------------------------------------------------------------------------------------------------------------------


def test_each_message_gets_an_id_of_its_own_and_those_that_have_one_stay_the_same_objects() -> None:
    old = [HumanMessage("a", id="1"), AIMessage("b", id="2")]
    new = [HumanMessage("note"), old[0].model_copy(update={"content": "changed"}), old[1]]
    result = stamped(new, seed="turn", given=old)
    assert result[2] is old[1]
    assert None not in [message.id for message in result]
    assert len({message.id for message in result} | {"1"}) == 4, "a changed copy of a message is not that message"
    assert [m.id for m in stamped(new, seed="turn", given=old)] == [m.id for m in result]
    assert [m.id for m in stamped(new, seed="other", given=old)][:2] != [m.id for m in result][:2]
    assert [message.id for message in new[:2]] == [None, "1"]


def entries(*kinds: tuple[str, str | None]) -> list[EntryMetadata]:
    return [EntryMetadata((HistoryOrigin(kind, run_id=run),)) for kind, run in kinds]  # type: ignore[arg-type]


def request_of(messages: list[BaseMessage], **options: Any) -> NodeRequest:
    known = [describe(message, f"turn-{index}") for index, message in enumerate(messages)]
    return NodeRequest(
        **{
            "messages": messages,
            "entries": known,
            "turn_id": f"turn-{len(messages) - 1}",
            "request_index": 1,
            "cache_epoch": 0,
            "history_version": "v",
            **options,
        }
    )


async def test_what_an_edit_adds_has_ids_that_merge_with_nothing() -> None:
    messages = [HumanMessage("a", id="1"), AIMessage("b", id="2"), HumanMessage("c", id="3")]

    def process(ctx: Context) -> list[BaseMessage]:
        return [HumanMessage("so far: a", id="3"), ctx.messages[2]]

    outcome = await edit(request_of(messages), HistoryProcessingInForce(process, None), owner=object())
    assert outcome.verdict == "accepted"
    assert outcome.messages[1] is messages[2]
    assert outcome.messages[0].id not in ("1", "2", "3", None)
    assert outcome.messages[0].content == "so far: a"


async def test_a_released_answer_stays_the_message_that_it_is() -> None:
    from laneway.activities.langchain_traits import ModelTraits

    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    messages: list[BaseMessage] = [
        HumanMessage("a", id="1"),
        AIMessage("b", id="2"),
        HumanMessage("c", id="3"),
        AIMessage([signed, {"type": "text", "text": "d"}], id="4"),
        HumanMessage("e", id="5"),
    ]
    asked = request_of(messages, model=ModelTraits("anthropic:claude-sonnet-5-5", binds_reasoning=True))
    outcome = await edit(asked, HistoryProcessingInForce(lambda ctx: ctx.messages[2:], None), owner=object())
    assert [message.id for message in outcome.messages] == ["3", "4", "5"]
    assert outcome.receipt is not None
    assert len(outcome.receipt.released_reasoning) == 1
    assert outcome.messages[1].content == [{"type": "text", "text": "d"}]


@pytest.mark.parametrize("kind", ["accepted", "no-op", "skipped"])
async def test_a_repeated_attempt_finds_the_edit_that_the_first_has_made(kind: str) -> None:
    """Whatever its processor would answer now: what has finished in the step refers to that history."""
    kept: dict[str, bytes] = {}

    async def write(key: str, result: bytes) -> bytes | None:
        held = kept.get(key)
        kept.setdefault(key, result)
        return held

    asked: list[int] = []

    def process(ctx: Context) -> list[BaseMessage]:
        asked.append(len(asked))
        note = AIMessage(f"note {len(asked)}", additional_kwargs={"at": 1})
        return [*ctx.messages[:2], HumanMessage(f"note {len(asked)}"), note, ctx.messages[2]]

    def same(ctx: Context) -> list[BaseMessage]:
        asked.append(len(asked))
        return ctx.messages if len(asked) == 1 else ctx.messages[-1:]

    def refuse(state: HistoryProcessorState) -> bool:
        asked.append(len(asked))
        return False

    condition = refuse if kind == "skipped" else None
    processing = HistoryProcessingInForce(same if kind == "no-op" else process, condition)
    messages = [HumanMessage("a", id="1"), AIMessage("b", id="2"), HumanMessage("c", id="3")]
    request = request_of(messages)

    async def attempt() -> Any:
        journal = ToolJournal(dict(kept), write)
        return await edit_once(request, processing, owner=object(), journal=journal, codec=MessageCodec())

    first, second = await attempt(), await attempt()
    assert first.verdict == second.verdict == kind
    assert list(second.messages) == list(first.messages)
    assert list(second.entries) == list(first.entries)
    assert second.receipt == first.receipt
    assert second.messages[0] is messages[0]
    assert len(asked) == 1


def test_the_current_prompt_is_the_first_thing_that_the_turns_user_said() -> None:
    messages = [HumanMessage("a"), AIMessage("b"), HumanMessage("c"), AIMessage("d")]
    known = entries(("user", "t1"), ("model", "t1"), ("user", "t2"), ("user", "t2"))
    assert request_of(messages, entries=known, turn_id="t2").current_start == 2
    assert request_of(messages, entries=known, turn_id="t3").current_start is None


# Sizes ----------------------------------------------------------------------------------------------------------------


def test_a_history_is_as_large_as_its_provider_measured_it_and_what_came_since() -> None:
    usage: Any = {"input_tokens": 900, "output_tokens": 50, "total_tokens": 950}
    messages: list[BaseMessage] = [
        HumanMessage("a"),
        AIMessage("b", usage_metadata=usage),
        ToolMessage("c", tool_call_id="x"),
        HumanMessage("d"),
    ]
    known = [EntryMetadata(estimated_tokens=10) for _ in messages]
    assert measured(messages, known).history_tokens == 970
    assert measured(messages, known, live=2).history_tokens == 40, "measured before the history was rewritten"
    silent = [
        message.model_copy(update={"usage_metadata": None}) if i == 1 else message for i, message in enumerate(messages)
    ]
    assert measured(silent, known).history_tokens == 40
