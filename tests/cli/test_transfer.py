"""`laneway export` and `laneway import`, and what `show`, `send` and `chat` tell of edits and repairs."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessagesTypeAdapter
from redis.asyncio import Redis

from laneway import LanewayClient, Settings
from laneway.cli.edits import edit_line, receipt_row
from laneway.history.archives import ArchivedItem
from laneway.history.editing import EditReceipt

from tests.cli.processes import CommandLine

EDITOR = Path(__file__).with_name("editor.py")


@pytest.fixture
async def client(folder: Path, settings: Settings) -> AsyncIterator[LanewayClient]:
    """A client, beside a worker with the editor."""
    from tests.cli.editor import app

    shutil.copy(EDITOR, folder)
    async with app.worker(settings), app.client(settings) as connected:
        yield connected


def request(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts)}


def user(text: str) -> dict[str, Any]:
    return {"part_kind": "user-prompt", "content": text, "timestamp": "2026-01-01T00:00:00Z"}


def response(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "response", "parts": list(parts), "timestamp": "2026-01-01T00:00:00Z"}


def called(call_id: str) -> dict[str, Any]:
    return {"part_kind": "tool-call", "tool_name": "clock", "args": {}, "tool_call_id": call_id}


def returned(call_id: str) -> dict[str, Any]:
    part = {"part_kind": "tool-return", "tool_name": "clock", "content": "noon", "tool_call_id": call_id}
    return part | {"timestamp": "2026-01-01T00:00:00Z"}


BROKEN = [
    request(user("one")),
    response(called("a")),
    request(returned("a"), returned("b")),
    response(called("a")),
]


async def test_an_exported_history_imports_into_another_conversation_as_it_was(
    laneway: CommandLine, client: LanewayClient, folder: Path, conversation_id: str
):
    """Tool exchanges too; the export needs no application, and is what the framework's own list form is."""
    conversation = client.conversation(conversation_id)
    await conversation.ask("editor", "one")
    await conversation.ask("editor", "time")
    messages = await conversation.messages("editor")
    done = await laneway("export", conversation_id, "editor")
    assert (done.code, done.err) == (0, "")
    assert done.json() == json.loads(ModelMessagesTypeAdapter.dump_json(messages))
    assert ModelMessagesTypeAdapter.validate_json(done.out) == messages
    to_file = await laneway("export", conversation_id, "editor", "--output", "kept.json")
    assert (to_file.code, to_file.out) == (0, "6 messages written to kept.json\n")
    assert (folder / "kept.json").read_text() == done.out

    other = f"{conversation_id}-2"
    imported = await laneway("import", "editor.py", other, "editor", "kept.json", "--turn-id", "t1")
    assert (imported.code, imported.out) == (0, "6 messages imported (turn t1)\n")
    assert await client.conversation(other).messages("editor") == messages
    again = await laneway("import", "editor.py", other, "editor", "-", "--turn-id", "t1", stdin=done.out)
    assert (again.code, again.out) == (0, imported.out)
    refused = await laneway("import", "editor.py", other, "editor", "kept.json")
    assert refused.code == 1
    assert "HistoryError: the lane has a history of 6 messages: only a lane without one takes an" in refused.err
    assert await client.conversation(other).messages("editor") == messages


async def test_archived_results_go_with_an_export_that_is_asked_for_them(
    laneway: CommandLine, client: LanewayClient, redis: Redis, folder: Path, conversation_id: str
):
    """One file for both; an export without them says what it leaves out, and what was altered is refused."""
    conversation, other = client.conversation(conversation_id), client.conversation(f"{conversation_id}-2")
    await conversation.ask("editor", "one")
    item = ArchivedItem("result", (b'"all of it"',), "clock")
    await redis.hset(client.store.names(conversation.lane("editor")).archive, item.reference, item.to_bytes())
    plain = await laneway("export", conversation_id, "editor", "--output", "plain.json")
    assert plain.err.startswith(
        "laneway: 1 archived items are left out, and what the history refers to cannot be read "
    )
    assert isinstance(json.loads((folder / "plain.json").read_text()), list)

    whole = await laneway("export", conversation_id, "editor", "--archives", "--output", "whole.json")
    assert (whole.code, whole.err) == (0, "")
    imported = await laneway("import", "editor.py", other.conversation_id, "editor", "whole.json")
    assert (imported.code, imported.out.partition(" (")[0]) == (0, "2 messages imported")
    assert await other.messages("editor") == await conversation.messages("editor")
    assert await other.archives("editor") == {item.reference: item.to_bytes()}

    text = (folder / "whole.json").read_text()
    for changed, told in (
        (text.replace(item.reference, "ar-0000000000000000"), "archive 'ar-0000000000000000' was altered: what it"),
        (text.replace(item.reference + '": "', item.reference + '": "%'), "the archives in standard input cannot be "),
        ('{"archives": [], "messages": []}', "the archives in standard input cannot be read: "),
        ('{"archives": {}, "messages": {}}', "standard input holds an object, not a list of messages;"),
    ):
        refused = await laneway("import", "editor.py", f"{conversation_id}-3", "editor", "-", stdin=changed)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(f"laneway: {told}")


async def test_what_cannot_be_exported_is_told(laneway: CommandLine, client: LanewayClient, conversation_id: str):
    """A lane that is not there, and a file that cannot be written."""
    done = await laneway("export", conversation_id, "editor")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"laneway: there is no lane of conversation {conversation_id!r} with agent 'editor'")
    await client.conversation(conversation_id).ask("editor", "one")
    done = await laneway("export", conversation_id, "editor", "-o", "no/such/folder.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("laneway: no/such/folder.json cannot be written: No such file or directory;")


@pytest.mark.parametrize(
    ("history", "line"),
    [
        (None, "history.json cannot be read: No such file or directory; give a file of JSON"),
        ("[{", "history.json is not JSON: Expecting property name"),
        ("\x80", "history.json is not JSON: "),
        ('{"kind": "request"}', "history.json holds an object, not a list of messages;"),
        ("null", "history.json holds null, not a list of messages;"),
        ("[]", "the imported history breaks the rule 'empty': "),
        ([request(user("one")), {"kind": "x"}], "history.json breaks the rule 'not_native' at message 1: pydantic_ai "),
        ([request(user("one")), request({"part_kind": "user-prompt"})], "history.json breaks the rule 'not_native' at"),
        ([response()], "the imported history breaks the rule 'opens_with_model' at message 0: "),
        (BROKEN[:2], "the imported history breaks the rule 'orphan_call' at message 1: "),
        (BROKEN[:3], "the imported history breaks the rule 'orphan_result' at message 2: "),
        ([*BROKEN[:2], request(returned("a")), BROKEN[3]], "the imported history breaks the rule 'reused_call_id' at"),
    ],
)
def test_a_history_that_cannot_be_imported_is_one_line_before_anything_is_connected(
    history: object, line: str, nowhere: CommandLine, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch
):
    """With the rule and the message; no server is there, and none is missed."""
    from laneway.cli.commands import run

    if history is not None:
        text = history if isinstance(history, str) else json.dumps(history)
        (folder / "history.json").write_text(text, encoding="latin-1")
    monkeypatch.chdir(folder)
    for name, value in nowhere.environment.items():
        monkeypatch.setenv(name, value)
    assert run(["import", "shop.py", "c", "talker", "history.json"]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"laneway: {line}")
    assert (told.out, told.err.count("\n")) == ("", 1)


async def test_an_error_in_a_history_has_its_rule_and_index_as_json(nowhere: CommandLine):
    done = await nowhere("import", "shop.py", "c", "talker", "-", "--json", stdin=json.dumps([request(user("one")), 7]))
    found = done.json()
    assert (done.code, found["error"]) == (2, "HistoryProcessingValidationError")
    assert (found["rule"], found["index"]) == ("not_native", 1)
    assert found["message"].startswith("standard input breaks the rule 'not_native' at message 1")


async def test_repairs_are_told_and_shown(laneway: CommandLine, client: LanewayClient, conversation_id: str):
    """By the index in the file."""
    history = json.dumps(BROKEN)
    done = await laneway(
        "import", "editor.py", conversation_id, "editor", "-", "--repair", "--turn-id", "t1", stdin=history
    )
    assert done.code == 0
    assert done.out.splitlines() == [
        "5 messages imported (turn t1)",
        "message 2: a result for 'b', which was not called, is removed",
        "message 3: call 'a' reused an id: it is 'a-2' now",
        "message 3: call 'a' had no result: it is answered with that",
    ]
    again = await laneway(
        *("import", "editor.py", conversation_id, "editor", "-", "--repair", "--turn-id", "t1", "--json"),
        stdin=history,
    )
    found = again.json()
    assert set(found) == {"turn_id", "outcome", "checkpoint", "repairs"}
    assert found["repairs"][1] == {"kind": "call_renamed", "index": 3, "tool_call_id": "a", "new_tool_call_id": "a-2"}
    shown = await laneway("show", conversation_id, "editor")
    rows = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert "1 3 call 'a' reused an id: it is 'a-2' now" in rows
    (turn,) = (await laneway("show", conversation_id, "editor", "--json")).json()["turns"]
    assert turn["repairs"] == found["repairs"]


async def test_edits_are_told_by_send_and_chat_and_shown(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """Receipts, no-ops and skipped conditions, turn by turn."""
    conversation = client.conversation(conversation_id)
    await conversation.ask("editor", "time")
    sent = await laneway("send", "editor.py", conversation_id, "editor", "forget")
    assert (sent.code, sent.out) == (0, "well\n")
    records = await client.turns(conversation.lane("editor"))
    (edit,) = records[1].tally.edits
    tokens = f"{edit.tokens_before} → {edit.tokens_after}"
    assert sent.err == f"history edited by forget: 5 → 1 messages, {tokens} tokens, epoch 0 → 1\n"
    chatted = await laneway("chat", "editor.py", "editor", "-c", conversation_id, "--history", "0", stdin="forget\n")
    assert chatted.out == "well\n"
    told = "history edited by forget: 3 → 1 messages, "
    assert [line.startswith(told) for line in chatted.err.splitlines()[2:]] == [True]
    lines = (await laneway("chat", "editor.py", "editor", "-c", conversation_id, "--json", stdin="forget\n")).lines()
    (event,) = [line for line in lines if line.get("event") == "history.rewritten"]
    assert (event["data"]["entries_before"], event["data"]["epoch_after"]) == (3, 3)

    rows = [" ".join(row.split()) for row in (await laneway("show", conversation_id, "editor")).out.splitlines()]
    first = rows.index("# edits no-ops skipped")
    assert rows[first + 2 : first + 6] == ["1 0 1 1", "2 1 0 0", "3 1 0 0", "4 1 0 0"]
    assert f"2 1 {edit.processor} {edit.groups_before} → {edit.groups_after} 5 → 1 {tokens} 0 → 1" in rows
    turns = (await laneway("show", conversation_id, "editor", "--json")).json()["turns"]
    assert [(len(turn["edits"]), turn["noops"], turn["skips"]) for turn in turns[:2]] == [(0, 1, 1), (1, 0, 0)]
    assert set(turns[1]["edits"][0]) == {
        *("request_index", "processor", "groups_before", "groups_after", "entries_before", "entries_after"),
        *("tokens_before", "tokens_after", "epoch_before", "epoch_after", "released_reasoning", "calls"),
    }


def test_released_reasoning_is_counted_in_a_line_and_named_in_a_row():
    receipt = EditReceipt(1, "shop:trim", 3, 2, 5, 3, 100, 60, 0, 1, ("thinking-1", "thinking-2"))
    figures = {"processor": "shop:trim", "released_reasoning": ["thinking-1", "thinking-2"]}
    assert edit_line(figures).endswith(", reasoning released: 2")
    assert receipt_row(4, receipt)[-1] == "thinking-1, thinking-2"
