"""The three APIs behind one door: who may ask, what is checked, how an answer is rendered."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tests.support.provider import chat, messages, responses
from tests.support.provider.answers import Answer
from tests.support.provider.errors import Refusal, status_refusal
from tests.support.provider.rendering import Checked, Ids, Rendered
from tests.support.provider.signatures import Signer
from tests.support.provider.tokens import PrefixCache
from tests.support.provider.transcript import Api, Json

API_PATHS: dict[str, Api] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
_OPENAI_MODELS = re.compile(r"^(gpt-|chatgpt-|o\d|test-)")
_ANTHROPIC_MODELS = re.compile(r"^(claude-|test-)")


@dataclass
class Apis:
    """The APIs with the state they share: keys, models, the prefix cache, the ids."""

    ids: Ids
    signer: Signer
    api_key: str | None = None
    models: Collection[str] | None = None
    context_limit_tokens: int | None = None
    bind_thinking: bool | None = None
    alternate_roles: bool = False
    cache: PrefixCache = field(default_factory=PrefixCache)

    def __post_init__(self) -> None:
        self.responses = responses.ResponsesApi(self.signer, self.cache)
        self.messages = messages.MessagesApi(
            self.signer, self.cache, binds=self.bind_thinking, alternate=self.alternate_roles
        )

    def check(self, api: Api, headers: Mapping[str, str], body: Json | None) -> Checked:
        """Hold a request to all rules of its API; ``None`` is a body that was no JSON object."""
        self.check_key(api, headers)
        if body is None:
            anthropic = "The request body is not valid JSON"
            openai = "We could not parse the JSON body of your request."
            raise Refusal(anthropic if api == "messages" else openai)
        if api == "messages" and "anthropic-version" not in headers:
            raise Refusal("anthropic-version: header is required")
        self._check_model(api, body.get("model"))
        if api == "chat":
            checked, check_context = chat.check(body, self.cache), chat.check_context
        elif api == "responses":
            checked, check_context = self.responses.check(body), responses.check_context
        else:
            checked, check_context = self.messages.check(body, headers), messages.check_context
        if self.context_limit_tokens is not None:
            check_context(checked, self.context_limit_tokens)
        return checked

    def refusal(self, api: Api, body: Json) -> str | None:
        """Why the API would refuse a body, without HTTP; ``None`` when it would not."""
        headers = {"authorization": "Bearer key", "x-api-key": "key", "anthropic-version": "2023-06-01"}
        try:
            self.check(api, headers, body)
        except Refusal as refusal:
            return refusal.message
        return None

    def render(self, api: Api, body: Json, checked: Checked, answer: Answer) -> Rendered:
        """An answer in the form of its API."""
        match api:
            case "chat":
                return chat.render(body, checked, answer, self.ids)
            case "responses":
                return self.responses.render(body, checked, answer, self.ids)
            case "messages":
                return self.messages.render(body, checked, answer, self.ids)

    def check_key(self, api: Api, headers: Mapping[str, str]) -> None:
        """Refuse a request without the key."""
        bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
        key = headers.get("x-api-key", bearer) if api == "messages" else bearer
        if not key:
            missing = "x-api-key header is required" if api == "messages" else "You didn't provide an API key."
            raise Refusal(missing, status=401)
        if self.api_key is not None and key != self.api_key:
            raise status_refusal(api, 401)

    def _check_model(self, api: Api, model: object) -> None:
        anthropic = api == "messages"
        if not isinstance(model, str) or not model:
            raise Refusal("model: Field required" if anthropic else "you must provide a model parameter")
        pattern = _ANTHROPIC_MODELS if anthropic else _OPENAI_MODELS
        if not (pattern.match(model) if self.models is None else model in self.models):
            if anthropic:
                raise Refusal(f"model: {model}", status=404)
            raise Refusal(
                f"The model `{model}` does not exist or you do not have access to it.",
                status=404,
                code="model_not_found",
            )
