"""A history with archives goes to another lane, and what its references name can be read there."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from laneway.errors import InvalidInput

from tests.archival.readers import ROUNDS, AgentReader, PydanticReader, Reader, Step, page, reference_in
from tests.support.bench import Bench


class Rereading:
    """In its second conversation the model reads the first archive that its history names, and nothing else."""

    sent: list[list[str]]

    def step(self, texts: list[str]) -> Step:
        if "again" not in texts:
            return super().step(texts)  # type: ignore[misc,no-any-return]
        self.sent.append(texts)
        since = texts[texts.index("again") :]
        return ("read_archived", {"reference": reference_in(texts)}, "anew") if len(since) == 1 else "done"


class PydanticRereader(Rereading, PydanticReader):
    pass


class AgentRereader(Rereading, AgentReader):
    pass


@pytest.fixture(params=[PydanticRereader, AgentRereader], ids=["pydantic_ai", "langchain"])
def reader(request: pytest.FixtureRequest) -> Reader:
    made: Reader = request.param()
    return made


async def test_what_was_archived_can_be_read_where_it_was_imported(
    bench: Bench, redis: Redis, conversation_id: str, reader: Reader
):
    """Exactly; without them the model is told that there are none, and what is refused leaves none."""
    client = await bench.serve({"agent": reader.adapter()})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "read it all")
    messages, archives = await conversation.messages("agent"), await conversation.archives("agent")
    assert archives

    with_them = client.conversation(f"{conversation_id}-with")
    record = await with_them.import_messages("agent", messages, archives=archives, turn_id="import")
    assert record.outcome == "committed"
    assert (await with_them.import_messages("agent", messages, archives=archives, turn_id="import")) == record
    assert await with_them.archives("agent") == archives
    await with_them.ask("agent", "again")
    assert f"read returned: {page(1)}" in reader.sent[-1][-1]
    assert len(reader.sent) == ROUNDS + 2 + 2

    without = client.conversation(f"{conversation_id}-without")
    await without.import_messages("agent", messages)
    await without.ask("agent", "again")
    assert reader.sent[-1][-1].startswith("There is no archive 'ar-")

    refused = client.conversation(f"{conversation_id}-refused")
    (reference, blob), *_ = archives.items()
    for wrong, told in (
        ({reference: blob.replace(b"PAGE-1 ", b"PAGE-7 ")}, "was altered"),
        ({reference: b"nothing"}, "cannot be read"),
        ({reference: 7}, "cannot be read"),
        ([reference], "give what conversation.archives"),
    ):
        given: Any = wrong
        with pytest.raises(InvalidInput, match=told):
            await refused.import_messages("agent", messages, archives=given)
    base = client.store.names(refused.lane("agent")).base
    assert [key async for key in redis.scan_iter(f"{base}*")] == []
