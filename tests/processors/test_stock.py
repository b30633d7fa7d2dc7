"""What each stock processor does, one by one: windows and heads, cleared results, warnings, and several in a list."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from laneway.errors import HistoryProcessingError, HistoryProcessingValidationError
from laneway.history.processors import (
    ClearToolResultsProcessor,
    LimitWarnerProcessor,
    SlidingWindowProcessor,
    SummarizationProcessor,
    compose,
)

from tests.history.edits import Context, entries_of
from tests.processors.passes import ALWAYS, Summarizer, asked, kept, looked_up, model, passed, texts, user, window


async def test_a_counter_that_does_not_count_fails_by_name() -> None:
    cut = SlidingWindowProcessor(("tokens", 50), token_counter=lambda messages: "many")  # type: ignore[arg-type]
    with pytest.raises(HistoryProcessingError, match="token_counter returned 'many'"):
        await passed(cut, [*asked("a"), user("now")])


async def test_the_head_can_be_kept() -> None:
    messages = [*asked("a"), *asked("b"), *asked("c"), *asked("d"), user("now")]
    assert kept(await passed(window(1, keep_head=1), messages), messages) == [0, 1, 8]
    assert kept(await passed(window(3, keep_head=("messages", 2)), messages), messages) == [0, 1, 6, 7, 8]


async def test_any_trigger_of_a_list_is_enough() -> None:
    messages = [*asked("a"), user("now")]
    assert (await passed(SlidingWindowProcessor([("messages", 9), ("tokens", 9)], ALWAYS), messages)).verdict == (
        "accepted"
    )
    assert (await passed(SlidingWindowProcessor([("messages", 9), ("tokens", 999)], ALWAYS), messages)).verdict == (
        "no-op"
    )


async def test_reasoning_of_the_running_turn_that_binds_its_model_puts_the_cut_off() -> None:
    """Claude would refuse it after an edit, so the engine refuses the edit: the processor waits for the next turn."""
    thought = ThinkingPart("hm", signature="sig", provider_name="anthropic")
    call = ModelResponse(parts=[thought, ToolCallPart("look", {}, "c1")], provider_name="anthropic")
    result = ModelRequest(parts=[ToolReturnPart("look", "found", "c1")])
    messages = [*looked_up("a", "found"), user("now"), call, result]
    for processor in (window(0), ClearToolResultsProcessor(ALWAYS, 0), LimitWarnerProcessor(2)):
        assert (await passed(processor, messages, request_index=2, binds_reasoning=True)).verdict == "no-op"


async def test_cleared_results_go_and_the_rest_stays_as_text() -> None:
    messages = [*looked_up("old", "SECRET-1"), *looked_up("new", "SECRET-2"), user("now")]
    outcome = await passed(ClearToolResultsProcessor(ALWAYS, 1), messages)
    said = "\n".join(texts(outcome.messages))
    assert "SECRET-1" not in said
    assert "SECRET-2" in said
    assert 'assistant called look({"about":"old"})' in said
    assert "assistant: re: old" in said
    again = await passed(ClearToolResultsProcessor(ALWAYS, 0), outcome.messages, outcome.entries)
    cleared = "\n".join(texts(again.messages))
    assert "SECRET-2" not in cleared
    assert cleared.count("user: An earlier exchange") == 1, "one is not quoted inside another"


@pytest.mark.parametrize("options", [{"exclude_tools": ["look"]}, {"keep": 1}])
async def test_results_that_are_excluded_or_new_are_not_cleared(options: dict[str, Any]) -> None:
    messages = [*looked_up("old", "found", calls=2), user("now")]
    processor = ClearToolResultsProcessor(ALWAYS, **{"keep": 0, **options})
    assert (await passed(processor, messages)).verdict == "no-op"


async def test_an_exchange_with_a_file_is_not_cleared() -> None:
    exchange = looked_up("old", "found")
    exchange[0] = ModelRequest(parts=[UserPromptPart(["see", BinaryContent(b"x", media_type="image/png")])])
    assert (await passed(ClearToolResultsProcessor(ALWAYS, 0), [*exchange, user("now")])).verdict == "no-op"


@pytest.mark.parametrize(
    ("request_index", "level"),
    [(7, None), (8, "[Critical limit warning]"), (10, "[Critical limit warning]")],
)
async def test_requests_are_warned_of(request_index: int, level: str | None) -> None:
    """Of ten: the eighth is the first of which seven tenths are used, and leaves three, itself included."""
    loop: list[ModelMessage] = [user("now")]
    for n in range(request_index - 1):
        loop += looked_up(f"x{n}", "found")[1:3]
    outcome = await passed(LimitWarnerProcessor(10), [*asked("a"), *loop], request_index=request_index)
    said = "\n".join(texts(outcome.messages))
    assert (level is None) == (outcome.verdict == "no-op")
    assert level is None or level in said
    if outcome.verdict == "accepted":
        assert f"{request_index - 1} of 10" in said
        entries = outcome.entries
        again = await passed(LimitWarnerProcessor(10), outcome.messages, entries, request_index=request_index)
        assert again.verdict == "no-op"


async def test_a_warning_of_an_earlier_turn_does_not_keep_a_turn_from_its_own() -> None:
    warner = LimitWarnerProcessor(2, warning_threshold=0.1, critical_remaining_requests=2)
    first = await passed(warner, [user("one")])
    messages = [*first.messages, model("re: one"), user("two")]
    outcome = await passed(warner, messages, [*first.entries, *entries_of(messages[-2:])])
    assert "\n".join(texts(outcome.messages)).count("Critical limit warning") == 2


async def test_the_context_is_warned_of_once() -> None:
    warner = LimitWarnerProcessor(max_context_tokens=200)
    messages = [*asked("word " * 40), user("now")]
    outcome = await passed(warner, messages)
    assert "[Limit warning] Context" in "\n".join(texts(outcome.messages))
    small = LimitWarnerProcessor(max_context_tokens=250)
    again = [*outcome.messages, model("re: now"), user("on")]
    assert (await passed(small, again, [*outcome.entries, *entries_of(again[-2:])])).verdict == "no-op"


async def test_processors_of_a_list_run_in_order_each_on_what_the_last_one_left() -> None:
    seen: list[list[str]] = []

    def look(ctx: Context) -> list[ModelMessage]:
        seen.append([f"{g.protected_reasons}{g.entry_end - g.entry_start}" for g in ctx.groups])
        return ctx.messages

    summarizer = Summarizer()
    chain = compose(
        window(5),
        look,
        SummarizationProcessor(summarizer=summarizer, trigger=ALWAYS, keep=("messages", 3)),
        look,
        window(3),
    )
    messages = [*asked("a"), *asked("b"), *asked("c"), user("now")]
    outcome = await passed(chain, messages)
    assert seen == [["()2", "()2", "('current',)1"], ["()1", "()2", "('current',)1"]]
    assert "user: a" not in summarizer.requests[0]
    assert "user: b" in summarizer.requests[0]
    assert kept(outcome, messages) == [4, 5, 6], "the last window drops the summary"


async def test_what_one_of_a_list_may_not_return_is_refused_and_named() -> None:
    messages = [*asked("a"), *asked("b"), user("now")]
    with pytest.raises(HistoryProcessingValidationError) as refused:
        await passed(compose(lambda ctx: ctx.messages[1:], window(0)), messages)
    assert refused.value.rule == "partial_group"
    with pytest.raises(HistoryProcessingError, match="no luck"):
        await passed(compose(_broken, window(0)), messages)


def _broken(ctx: Context) -> list[ModelMessage]:
    raise RuntimeError("no luck")
