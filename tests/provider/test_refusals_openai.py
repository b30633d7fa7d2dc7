"""What OpenAI refuses, in its words: Chat Completions and Responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from openai import APIStatusError

from tests.provider.conftest import Sdk
from tests.support.provider import ProviderServer, answer, by_step, call, thinking

USER = {"role": "user", "content": "hi"}


def calling(*ids: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": {"name": "add", "arguments": "{}"}} for id in ids],
    }


def result(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "1"}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "empty array"),
        ([USER, result("c1")], "must be a response to a preceeding message with 'tool_calls'"),
        ([USER, calling("c1")], "did not have response messages: c1"),
        ([USER, calling("c1", "c2"), result("c2"), USER], "did not have response messages: c1"),
        ([USER, calling("c1"), USER, result("c1")], "did not have response messages: c1"),
        ([USER, calling("c1"), result("c1"), result("c2")], "'c2' not found in 'tool_calls' of previous message"),
        ([USER, calling("c1"), result("c1"), result("c1")], "Duplicate value for 'tool_call_id' of 'c1'"),
        ([USER, calling("c1", "c1"), result("c1")], "Duplicate value for 'tool_call_id' of 'c1'"),
        ([USER, calling("c1"), result("c1"), calling("c1"), result("c1")], "Duplicate value for 'tool_call_id'"),
        ([{"role": "user", "content": None}], "expected a string, got null"),
        ([USER, {"role": "assistant", "content": None}], "expected a string, got null"),
        ([USER, {"role": "assistant", "content": "", "tool_calls": []}], "tool_calls': empty array"),
        ([{"role": "model", "content": "hi"}], "Invalid value: 'model'"),
    ],
)
async def test_chat_refuses(server: ProviderServer, openai: Sdk, messages: list[Any], words: str):
    with pytest.raises(APIStatusError, match="Error code: 400") as refused:
        await openai.chat.completions.create(model="gpt-5", messages=messages)
    assert words in refused.value.message
    assert refused.value.type == "invalid_request_error"
    assert server.requests[0].refusal is not None
    assert server.counters.made == 0


async def test_chat_accepts_what_is_well_formed(openai: Sdk):
    messages = [{"role": "system", "content": "s"}, USER, calling("c1", "c2"), result("c2"), result("c1"), USER, USER]
    await openai.chat.completions.create(model="gpt-5", messages=messages)


def fcall(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "add", "arguments": "{}", **more}


def output(id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": "1"}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([USER, output("c1")], "No tool call found for function call output with call_id c1."),
        ([USER, output("c1"), fcall("c1")], "No tool call found for function call output with call_id c1."),
        ([USER, fcall("c1")], "No tool output found for function call c1."),
        ([USER, fcall("c1"), fcall("c1"), output("c1")], "Duplicate function call found"),
        ([USER, fcall("c1"), output("c1"), output("c1")], "Duplicate function call output found"),
        (
            [USER, fcall("c1", id="fc_1"), output("c1"), fcall("c2", id="fc_1"), output("c2")],
            "Duplicate item found with id fc_1",
        ),
        ([USER, fcall("c1", id="call_1"), output("c1")], "Expected an ID that begins with 'fc'"),
        ([USER, {"type": "reasoning", "id": "rs_1", "summary": []}], "Item with id 'rs_1' not found."),
        ([{"type": "item_reference", "id": "msg_1"}], "Item with id 'msg_1' not found."),
        (
            [USER, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAAx.y"}],
            "could not be verified",
        ),
    ],
)
async def test_responses_refuses(openai: Sdk, items: list[Any], words: str):
    with pytest.raises(APIStatusError) as refused:
        await openai.responses.create(model="gpt-5", input=items)
    assert words in refused.value.message
    assert refused.value.status_code in (400, 404)


@pytest.fixture
async def thought(server: ProviderServer, openai: Sdk) -> list[dict[str, Any]]:
    """The items of an answer that reasoned, called a tool and spoke."""
    server.script = by_step([answer(thinking("hm"), call("add"), "calling")], ["ok"])
    made = await openai.responses.create(model="gpt-5", input="hi")
    return [item.model_dump(exclude_none=True) for item in made.output]


async def test_reasoning_goes_with_its_follower(openai: Sdk, thought: list[dict[str, Any]]):
    reasoning, called, said = thought
    result = output(called["call_id"])

    async def refusal(*items: dict[str, Any]) -> str:
        with pytest.raises(APIStatusError) as refused:
            await openai.responses.create(model="gpt-5", input=[USER, *items, USER])
        return refused.value.message

    assert "of type 'reasoning' was provided without its required following item" in await refusal(reasoning)
    assert "without its required following item" in await refusal(reasoning, said)
    assert f"without its required 'reasoning' item: '{reasoning['id']}'" in await refusal(called, result)
    await openai.responses.create(model="gpt-5", input=[USER, *thought, result, USER])
    anonymous = {key: value for key, value in called.items() if key != "id"}
    await openai.responses.create(model="gpt-5", input=[USER, anonymous, result, USER])


async def test_encrypted_reasoning_is_for_its_own_item(openai: Sdk, thought: list[dict[str, Any]]):
    reasoning, called, _ = thought
    stolen = reasoning | {"id": "rs_other"}
    with pytest.raises(APIStatusError, match="did not match the target item id") as refused:
        await openai.responses.create(model="gpt-5", input=[USER, stolen, called, output(called["call_id"]), USER])
    assert refused.value.code == "invalid_encrypted_content"


async def test_unstored_reasoning_needs_its_encrypted_content(server: ProviderServer, openai: Sdk):
    server.script = by_step([answer(thinking("hm"), "said")], ["ok"])
    made = await openai.responses.create(model="gpt-5", input="hi", store=False)
    items = [item.model_dump(exclude_none=True) for item in made.output]
    await openai.responses.create(model="gpt-5", input=[USER, *items, USER], store=False)
    del items[0]["encrypted_content"]
    with pytest.raises(APIStatusError, match="not persisted when `store` is set to false"):
        await openai.responses.create(model="gpt-5", input=[USER, *items, USER], store=False)


async def test_server_side_state_must_exist(server: ProviderServer, openai: Sdk):
    first = await openai.responses.create(model="gpt-5", input="hi")
    await openai.responses.create(model="gpt-5", input="more", previous_response_id=first.id)
    server.forget_response(first.id)
    with pytest.raises(APIStatusError, match="Previous response with id") as expired:
        await openai.responses.create(model="gpt-5", input="more", previous_response_id=first.id)
    assert (expired.value.status_code, expired.value.code) == (400, "previous_response_not_found")

    conversation = await openai.conversations.create()
    await openai.responses.create(model="gpt-5", input="hi", conversation=conversation.id)
    with pytest.raises(APIStatusError, match="Mutually exclusive"):
        await openai.responses.create(
            model="gpt-5", input="hi", conversation=conversation.id, previous_response_id=first.id
        )
    server.forget_conversation(conversation.id)
    with pytest.raises(APIStatusError, match="Conversation with id") as gone:
        await openai.responses.create(model="gpt-5", input="hi", conversation=conversation.id)
    assert gone.value.status_code == 404


async def test_a_call_left_open_on_the_server_must_be_answered(server: ProviderServer, openai: Sdk):
    server.script = by_step([call("add"), "ok"])
    first = await openai.responses.create(model="gpt-5", input="hi")
    with pytest.raises(APIStatusError, match="No tool output found for function call"):
        await openai.responses.create(model="gpt-5", input="more", previous_response_id=first.id)
    done = await openai.responses.create(
        model="gpt-5", input=[output(first.output[0].call_id)], previous_response_id=first.id
    )
    assert done.output_text == "ok"


async def test_what_the_server_holds_must_not_be_sent_again(server: ProviderServer, openai: Sdk):
    first = await openai.responses.create(model="gpt-5", input="hi")
    again = [item.model_dump(exclude_none=True) for item in first.output]
    with pytest.raises(APIStatusError, match="Duplicate item found with id"):
        await openai.responses.create(model="gpt-5", input=[*again, USER], previous_response_id=first.id)


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_both_refuse_unknown_models_wrong_keys_and_long_prompts(
    api: str, connect_openai: Callable[[ProviderServer], Sdk]
):
    async def ask(client: Sdk, model: str = "gpt-5", text: str = "hi") -> APIStatusError:
        path = "/chat/completions" if api == "chat" else "/responses"
        sent = {"messages": [{"role": "user", "content": text}]} if api == "chat" else {"input": text}
        with pytest.raises(APIStatusError) as refused:
            await client.post(path, body={"model": model, **sent}, cast_to=object)
        return refused.value

    async with ProviderServer(api_key="test-key", context_limit_tokens=100) as server:
        client = connect_openai(server)
        unknown = await ask(client, model="nothing-7b")
        assert (unknown.status_code, unknown.code) == (404, "model_not_found")
        wrong = await ask(client.with_options(api_key="wrong"))
        assert (wrong.status_code, wrong.code) == (401, "invalid_api_key")
        long = await ask(client, text="word " * 200)
        assert (long.status_code, long.code) == (400, "context_length_exceeded")


async def test_bad_json_and_a_missing_key(server: ProviderServer):
    async with httpx2.AsyncClient(base_url=server.url) as client:
        bad = await client.post("/v1/responses", content=b"{nope", headers={"authorization": "Bearer x"})
        keyless = await client.post("/v1/chat/completions", json={"model": "gpt-5", "messages": [USER]})
    assert bad.status_code == 400
    assert "could not parse the JSON body" in bad.json()["error"]["message"]
    assert keyless.status_code == 401
    assert server.counters.refused == 2


async def test_bodies_can_be_judged_without_http(server: ProviderServer):
    assert server.apis.refusal("chat", {"model": "gpt-5", "messages": [USER]}) is None
    assert "empty array" in (server.apis.refusal("chat", {"model": "gpt-5", "messages": []}) or "")
    assert server.requests == []
