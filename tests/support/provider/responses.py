"""OpenAI Responses: what the server keeps, a request's check and transcript."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.provider.answers import Answer
from tests.support.provider.errors import Refusal
from tests.support.provider.rendering import Checked, Ids, Rendered, figures, with_ids
from tests.support.provider.responses_rules import (
    Issued,
    check_items,
    compaction_threshold,
    normal_items,
    resolve,
    since_compaction,
)
from tests.support.provider.responses_wire import compaction_item, events, output_items, whole
from tests.support.provider.signatures import Signer
from tests.support.provider.tokens import PrefixCache, prompt_segments
from tests.support.provider.transcript import Entry, Json, content_text


@dataclass(frozen=True)
class Stored:
    """A response as kept: its own items on top of those of the response before it."""

    previous: str | None
    items: tuple[Json, ...]
    body: Json


@dataclass
class ResponsesApi:
    """The API with its server-side state: responses, conversations, and every item it has issued."""

    signer: Signer
    cache: PrefixCache
    responses: dict[str, Stored] = field(default_factory=dict[str, Stored])
    conversations: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    issued: dict[str, Issued] = field(default_factory=dict[str, Issued])

    def new_conversation(self, ids: Ids, items: list[Json] | None = None) -> Json:
        """Create a conversation that the server owns."""
        id = ids.new("conv_")
        self.conversations[id] = normal_items(items or [])
        return {"id": id, "object": "conversation", "created_at": 0, "metadata": {}}

    def check(self, body: Json) -> Checked:
        """Hold a request to the rules; raises ``Refusal``."""
        previous, conversation = body.get("previous_response_id"), conversation_id(body)
        if previous and conversation:
            raise Refusal(
                "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only "
                "providing one of: 'previous_response_id' or 'conversation'.",
                code="mutually_exclusive_parameters",
            )
        if body.get("input") is None and not previous and not conversation:
            raise Refusal(
                'One of "input" or "previous_response_id" or "prompt" or "conversation_id" must be provided.',
                code="missing_required_parameter",
            )
        given = normal_items(body["input"]) if body.get("input") is not None else []
        base = self._chain(previous) if previous else self._conversation(conversation) if conversation else []
        effective = [*base, *resolve(given, self.issued)]
        check_items(given, effective, self.issued, self.signer)
        instructions = body.get("instructions") or ""
        counted = self.cache.count(
            ("responses", str(body["model"]), str(body.get("prompt_cache_key", ""))),
            prompt_segments(body.get("tools"), instructions, since_compaction(effective)),
        )
        entries = [Entry("system", instructions)] if instructions else []
        return Checked(
            transcript=tuple(entries + _transcript(effective)),
            tools=tuple(str(tool.get("name", tool.get("type", ""))) for tool in body.get("tools") or []),
            counted=counted,
            context=tuple(resolve(given, self.issued)),
        )

    def render(self, body: Json, checked: Checked, answer: Answer, ids: Ids) -> Rendered:
        """The answer as a ``response`` and as its events; what it leaves on the server is kept."""
        answer = with_ids(answer, ids, "call_")
        id = ids.new("resp_")
        items = output_items(answer, ids, self.signer)
        threshold = compaction_threshold(body)
        if threshold is not None and checked.counted.input_tokens >= threshold:
            items.insert(0, compaction_item(ids, self.signer))
        store = body.get("store") is not False
        response = whole(id, body, answer, items, figures(checked.counted, answer))
        self._issue(items, stored=store)
        given = checked.context if isinstance(checked.context, tuple) else ()
        if store:
            self.responses[id] = Stored(body.get("previous_response_id"), (*given, *items), response)

        def keep() -> None:
            if conversation := conversation_id(body):
                self.conversations[conversation] += [*given, *items]

        return Rendered(id, response, tuple(events(response, answer)), response["usage"], on_finished=keep)

    def _issue(self, items: list[Json], *, stored: bool) -> None:
        for at, item in enumerate(items):
            before = items[at - 1] if at else None
            after = items[at + 1] if at + 1 < len(items) else None
            self.issued[item["id"]] = Issued(
                item,
                reasoning=before["id"] if before and before["type"] == "reasoning" else None,
                follower=after["id"] if after else None,
                stored=stored,
            )

    def _chain(self, id: str) -> list[Json]:
        links: list[tuple[Json, ...]] = []
        at: str | None = id
        while at is not None:
            stored = self.responses.get(at)
            if stored is None:
                raise Refusal(
                    f"Previous response with id '{at}' not found.",
                    param="previous_response_id",
                    code="previous_response_not_found",
                )
            links.append(stored.items)
            at = stored.previous
        return [item for link in reversed(links) for item in link]

    def _conversation(self, id: str) -> list[Json]:
        if id not in self.conversations:
            raise Refusal(
                f"Conversation with id '{id}' not found.",
                status=404,
                kind="invalid_request_error",
                param="conversation",
            )
        return self.conversations[id]


def conversation_id(body: Json) -> str | None:
    """The server-owned conversation of a request."""
    conversation = body.get("conversation")
    found = conversation.get("id") if isinstance(conversation, dict) else conversation
    return found if isinstance(found, str) else None


def check_context(checked: Checked, limit_tokens: int) -> None:
    """Refuse a prompt over the model's context."""
    if checked.counted.input_tokens > limit_tokens:
        raise Refusal(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            param="input",
            code="context_length_exceeded",
        )


def _transcript(items: list[Json]) -> list[Entry]:
    entries: list[Entry] = []
    names: dict[str, str] = {}
    for item in items:
        match item.get("type"):
            case "function_call":
                names[item["call_id"]] = item["name"]
                entries.append(Entry("call", item["arguments"], item["call_id"], item["name"]))
            case "function_call_output":
                id = item["call_id"]
                entries.append(Entry("result", content_text(item.get("output")), id, names.get(id, "")))
            case "reasoning":
                entries.append(Entry("thinking", content_text(item.get("summary"))))
            case "message":
                text = content_text(item.get("content"))
                match item["role"]:
                    case "assistant":
                        entries.append(Entry("assistant", text))
                    case "system" | "developer":
                        entries.append(Entry("system", text))
                    case _:
                        entries.append(Entry("user", text))
            case _:
                continue
    return entries
