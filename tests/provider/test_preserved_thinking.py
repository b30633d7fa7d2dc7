"""Signed thinking: forged and altered blocks, and the binding to what came before."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from anthropic import APIStatusError

from tests.provider.conftest import Sdk
from tests.support.provider import ProviderServer, answer, call, thinking

BETA = "thinking-binding-controls-2026-08-01"
DROP = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
TOOLS = [{"name": "add", "input_schema": {"type": "object"}}]


@dataclass
class Talk:
    """A conversation of four requests, each answer of which has thought."""

    client: Sdk
    model: str = "claude-opus-5-5"
    system: str = "be brief"
    tools: list[dict[str, Any]] = field(default_factory=lambda: deepcopy(TOOLS))
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def send(self, **more: Any):
        return await self.client.beta.messages.create(
            model=self.model, max_tokens=99, system=self.system, tools=self.tools, messages=self.messages, **more
        )

    async def say(self, content: Any, **more: Any):
        self.messages.append({"role": "user", "content": content})
        made = await self.send(**more)
        self.messages.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in made.content]})
        return made

    async def refusal(self, **more: Any) -> str:
        with pytest.raises(APIStatusError, match="Error code: 400") as refused:
            await self.send(**more)
        return refused.value.message


@pytest.fixture
async def talk(server: ProviderServer, anthropic: Sdk) -> Talk:
    """user, thinking and call, result, thinking and text, user, thinking and text, user."""
    server.script = lambda request: (
        answer(thinking(f"thought {request.index}"), call("add"))
        if request.index == 0
        else answer(thinking(f"thought {request.index}"), f"said {request.index}")
    )
    made = Talk(anthropic)
    await made.say("one")
    used = made.messages[-1]["content"][-1]["id"]
    await made.say([{"type": "tool_result", "tool_use_id": used, "content": "1"}])
    await made.say("two")
    made.messages.append({"role": "user", "content": "three"})
    return made


async def test_an_unchanged_conversation_goes_on(talk: Talk):
    made = await talk.send()
    assert made.content[0].type == "thinking"


async def test_cache_marks_and_the_cut_of_messages_are_not_part_of_the_prefix(talk: Talk):
    talk.messages[0]["content"] = [{"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}]
    talk.messages[2]["content"][0] |= {"content": [{"type": "text", "text": "1"}], "is_error": False}
    talk.tools[0]["cache_control"] = {"type": "ephemeral"}
    await talk.send()


@pytest.mark.parametrize("forged", ["", "made up", "e30=.0000"])
async def test_a_signature_cannot_be_forged(talk: Talk, forged: str):
    talk.messages[1]["content"][0]["signature"] = forged
    assert "messages.1.content.0: Invalid `signature` in `thinking` block" in await talk.refusal()


async def test_a_thought_must_be_signed(talk: Talk):
    del talk.messages[1]["content"][0]["signature"]
    assert "messages.1.content.0.thinking.signature: Field required" in await talk.refusal()


async def test_a_thought_cannot_be_altered(talk: Talk):
    talk.messages[5]["content"][0]["thinking"] += "!"
    assert "in the latest assistant message cannot be modified" in await talk.refusal()
    talk.messages[5]["content"][0]["thinking"] = "thought 2"
    talk.messages[1]["content"][0]["thinking"] += "!"
    assert "messages.1.content.0: Invalid `signature`" in await talk.refusal()


async def test_another_server_knows_nothing_of_a_signature(
    talk: Talk, connect_anthropic: Callable[[ProviderServer], Sdk]
):
    async with ProviderServer(secret="other") as other, ProviderServer() as sibling:
        talk.client = connect_anthropic(sibling)
        await talk.send()
        talk.client = connect_anthropic(other)
        assert "Invalid `signature`" in await talk.refusal()


def change_system(talk: Talk) -> None:
    talk.system += "!"


def add_tool(talk: Talk) -> None:
    talk.tools.append({"name": "sub", "input_schema": {"type": "object"}})


def edit_prompt(talk: Talk) -> None:
    talk.messages[0]["content"] = "edited"


def edit_result(talk: Talk) -> None:
    talk.messages[2]["content"][0]["content"] = "[cleared]"


def drop_first_turn(talk: Talk) -> None:
    del talk.messages[:4]


def drop_thought_between(talk: Talk) -> None:
    del talk.messages[3]["content"][0]


@pytest.mark.parametrize(
    ("change", "at", "named"),
    [
        (change_system, "messages.1.content.0", "The `system` prompt differs"),
        (add_tool, "messages.1.content.0", "The `tools` differ"),
        (edit_prompt, "messages.1.content.0", "The `messages` before this block differ"),
        (edit_result, "messages.3.content.0", "The `messages` before this block differ"),
        (drop_first_turn, "messages.1.content.0", "The `messages` before this block differ"),
        (drop_thought_between, "messages.5.content.0", "was left out or moved"),
    ],
)
async def test_a_changed_prefix_is_refused_or_its_thinking_dropped(
    talk: Talk, change: Callable[[Talk], None], at: str, named: str
):
    """By default an error that names the block and what changed; asked to, the API drops what is stale."""
    change(talk)
    refusal = await talk.refusal()
    assert f"{at}: Invalid `signature` in `thinking` block. The block is bound to a different conversation." in refusal
    assert named in refusal
    made = await talk.send(thinking=DROP, betas=[BETA])
    dropped = made.input_transformations
    assert dropped[0].path == at
    assert {entry.reason for entry in dropped} == {"prefix_binding_mismatch"}


async def test_a_dropped_conversation_goes_on_dropping(talk: Talk):
    """What is produced after the drop is bound to the history as it is now."""
    talk.system = "changed"
    talk.messages.pop()
    await talk.say("three", thinking=DROP, betas=[BETA])
    made = await talk.say("four", thinking=DROP, betas=[BETA])
    assert [entry.path for entry in made.input_transformations] == [
        "messages.1.content.0",
        "messages.3.content.0",
        "messages.5.content.0",
    ]


async def test_thinking_may_be_left_out_from_the_front(talk: Talk):
    del talk.messages[1]["content"][0]
    await talk.send()
    del talk.messages[3]["content"][0]
    await talk.send()
    talk.system = "changed"
    del talk.messages[5]["content"][0]
    await talk.send()


async def test_the_drop_needs_its_beta(talk: Talk):
    assert "block_binding: Extra inputs are not permitted" in await talk.refusal(thinking=DROP)


async def test_thinking_of_another_model_is_dropped_without_an_error(talk: Talk):
    talk.model = "claude-sonnet-5-5"
    made = await talk.send()
    assert {entry.reason for entry in made.input_transformations} == {"model_binding_mismatch"}


async def test_other_models_do_not_bind(server: ProviderServer, anthropic: Sdk):
    """Signed, but not bound: only the text of the thought is protected."""
    server.script = lambda request: answer(thinking("hm"), "said")
    talk = Talk(anthropic, model="claude-opus-5")
    await talk.say("one")
    talk.system = "changed"
    await talk.say("two")
    talk.messages[1]["content"][0]["thinking"] = "altered"
    talk.messages.append({"role": "user", "content": "three"})
    assert "Invalid `signature`" in await talk.refusal()


@pytest.mark.parametrize(("binds", "model"), [(True, "claude-opus-5"), (False, "claude-opus-5-5")])
async def test_binding_can_be_forced_for_all_models_or_none(
    binds: bool, model: str, connect_anthropic: Callable[[ProviderServer], Sdk]
):
    async with ProviderServer(lambda request: answer(thinking("hm"), "said"), bind_thinking=binds) as server:
        talk = Talk(connect_anthropic(server), model=model)
        await talk.say("one")
        talk.system = "changed"
        talk.messages.append({"role": "user", "content": "two"})
        if binds:
            assert "bound to a different conversation" in await talk.refusal()
        else:
            await talk.send()


async def test_redacted_thinking_is_bound_too(server: ProviderServer, anthropic: Sdk):
    server.script = lambda request: answer(thinking("hm", redacted=True), "said")
    talk = Talk(anthropic)
    await talk.say("one")
    await talk.say("two")
    talk.messages.append({"role": "user", "content": "three"})
    talk.messages[0]["content"] = "edited"
    assert "Invalid `signature` in `redacted_thinking` block" in await talk.refusal()
    talk.messages[1]["content"][0]["data"] = "forged"
    assert "Invalid `data` in `redacted_thinking` block" in await talk.refusal()
