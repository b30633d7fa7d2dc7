"""The example cases: inputs drawn from public bug reports, each with the right verdict."""

from __future__ import annotations

from typing import Any

import pytest

from laneway.errors import ConfigurationError, HistoryProcessingError, HistoryProcessingValidationError
from laneway.history.context import HistoryProcessorState
from laneway.history.groups import find_groups
from laneway.history.scopes import INHERIT, HistoryProcessingSettings, in_force
from laneway.history.views import view_of

from tests.history.edits import FRAMES, Context, Frame, cases, edit, entries_of, messages_of, processor_of, request_for


def by_id(case: dict[str, Any]) -> str:
    return str(case["id"])


@pytest.mark.parametrize("frame", FRAMES, ids=str)
@pytest.mark.parametrize("case", cases("edit"), ids=by_id)
def test_the_groups_are_those_of_the_case(case: dict[str, Any], frame: Frame) -> None:
    messages = frame.load(case[frame.name]["messages"])
    view = view_of(frame.dialect, messages, entries_of(messages, frame=frame), request_index=case["request_index"])
    groups = find_groups(frame.dialect, view)
    assert [
        [group.entry_start, group.entry_end, group.closed, list(group.protected_reasons)] for group in groups
    ] == case[frame.name]["groups"]
    assert all(group.protected == bool(group.protected_reasons) for group in groups)


@pytest.mark.parametrize("frame", FRAMES, ids=str)
@pytest.mark.parametrize("case", cases("edit"), ids=by_id)
async def test_the_verdict_is_that_of_the_case(case: dict[str, Any], frame: Frame) -> None:
    native, expected = case[frame.name], case["expect"]
    messages = frame.load(native["messages"])
    says = frame.dialect.content
    before = [says(message) for message in messages]
    request = request_for(messages, request_index=case["request_index"], frame=frame)
    processor = processor_of(native["edit"], frame)

    match expected["verdict"]:
        case "rejected":
            with pytest.raises(HistoryProcessingValidationError) as refused:
                await edit(request, processor, frame=frame)
            assert refused.value.rule in expected["rules"]
            if "at" in native:
                assert refused.value.index in native["at"]
        case "error":
            with pytest.raises(HistoryProcessingError) as failed:
                await edit(request, processor, frame=frame)
            assert not isinstance(failed.value, HistoryProcessingValidationError)
        case "no-op":
            outcome = await edit(request, processor, frame=frame)
            assert outcome.verdict == "no-op"
            assert outcome.messages is messages
            assert outcome.receipt is None
        case "accepted":
            returned: list[Any] = []

            def recording(ctx: Context) -> Any:
                returned.extend(processor(ctx))
                return returned

            outcome = await edit(request, recording, frame=frame)
            assert outcome.verdict == "accepted"
            contents = [says(message) for message in returned]
            kept = [before.index(content) if content in before else "new" for content in contents]
            assert kept == native["kept"]
            settled = frame.dialect.settle(returned)
            assert [says(message) for message in outcome.messages] == [says(message) for message, _ in settled]
        case unknown:
            raise AssertionError(unknown)
    assert [says(message) for message in messages] == before, "the stored messages were touched"


@pytest.mark.parametrize("case", cases("condition"), ids=by_id)
async def test_the_condition_decides_as_in_the_case(case: dict[str, Any]) -> None:
    answer: Any = eval(case["returns"], {"__builtins__": {}})  # a literal in the project's own case file
    messages = messages_of(cases("edit")[0]["pydantic_ai"]["messages"])
    ran: list[bool] = []

    def processor(ctx: Context) -> list[Any]:
        ran.append(True)
        return ctx.messages

    def condition(state: HistoryProcessorState) -> bool:
        return answer

    if case["expect"]["verdict"] == "stopped":
        with pytest.raises(HistoryProcessingError):
            await edit(request_for(messages), processor, condition)
    else:
        outcome = await edit(request_for(messages), processor, condition)
        assert (outcome.verdict == "skipped") == (case["expect"]["verdict"] == "skipped")
    assert bool(ran) == (case["expect"]["verdict"] == "processed")


@pytest.mark.parametrize("case", cases("scope"), ids=by_id)
def test_the_scope_resolves_as_in_the_case(case: dict[str, Any]) -> None:
    named: dict[str, Any] = {}

    def value(name: str) -> Any:
        if name == "omit":
            return INHERIT
        return None if name == "none" else named.setdefault(name, lambda _: name)

    scopes: list[HistoryProcessingSettings[Any]] = []
    for layer in case["layers"]:
        if layer == "leave" or layer[0] == "leave":
            scopes.pop()
        else:
            scopes.append(HistoryProcessingSettings(*map(value, layer)))
    if case["expect"]["processor"] == "error":
        with pytest.raises(ConfigurationError):
            in_force(scopes)
        return
    resolved = in_force(scopes)
    assert resolved.processor is (named[case["expect"]["processor"]] if case["expect"]["processor"] else None)
    assert resolved.condition is (named[case["expect"]["condition"]] if case["expect"]["condition"] else None)
