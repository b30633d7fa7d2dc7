"""Everything over HTTP that is not a request to a model.

Side endpoints of the APIs: ``POST /v1/messages/count_tokens``, ``POST /v1/conversations``, ``GET`` and
``DELETE`` of ``/v1/responses/ID`` and ``/v1/conversations/ID``. And the control of a server that runs as
its own process: ``POST /_control/gates/NAME`` releases a gate, ``POST /_control/faults`` with ``{"fault":
"status" | "reset" | "cut" | "stall" | "stream_error" | "slow", "times": N, …}`` lets requests fail, the other
fields being the arguments of that function in ``faults``; ``GET /_control/counters`` tells the counters.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.support.provider import faults
from tests.support.provider.connection import Exchange
from tests.support.provider.errors import Refusal, error_body
from tests.support.provider.transcript import Api, Json

if TYPE_CHECKING:
    from tests.support.provider.server import ProviderServer

_FAULTS: dict[str, Any] = {
    "status": faults.status,
    "reset": faults.reset,
    "cut": faults.cut,
    "stall": faults.stall,
    "stream_error": faults.stream_error,
    "slow": faults.slow,
}


class Control:
    """Answers the side endpoints of a server."""

    def __init__(self, server: ProviderServer) -> None:
        self._server = server

    async def answer(self, exchange: Exchange, path: str) -> None:
        """Answer a request that is not one to a model."""
        api: Api = "messages" if path.startswith("/v1/messages") else "responses"
        try:
            if path.startswith("/v1/"):
                self._server.apis.check_key(api, exchange.headers)
            status, body = 200, self._answer(exchange, path)
        except Refusal as refusal:
            status, body = refusal.status, error_body(api, refusal, "req_side")
        except (KeyError, TypeError, ValueError) as error:
            status, body = 400, error_body(api, Refusal(f"not understood: {error!r}"), "req_side")
        await exchange.respond(status, {"content-type": "application/json"}, json.dumps(body).encode())

    def _answer(self, exchange: Exchange, path: str) -> Json:
        server, apis = self._server, self._server.apis
        sent: Json = json.loads(exchange.body) if exchange.body else {}
        match exchange.method, path.strip("/").split("/"):
            case "POST", ["v1", "messages", "count_tokens"]:
                checked = apis.messages.check(sent, exchange.headers, counting=True)
                return {"input_tokens": checked.counted.input_tokens}
            case "POST", ["v1", "conversations"]:
                return apis.responses.new_conversation(apis.ids, sent.get("items"))
            case "GET", ["v1", "responses", id] if id in apis.responses.responses:
                return apis.responses.responses[id].body
            case "DELETE", ["v1", "responses", id] if id in apis.responses.responses:
                server.forget_response(id)
                return {"id": id, "object": "response", "deleted": True}
            case "GET", ["v1", "conversations", id, "items"] if id in apis.responses.conversations:
                return {"object": "list", "data": apis.responses.conversations[id], "has_more": False}
            case "DELETE", ["v1", "conversations", id] if id in apis.responses.conversations:
                server.forget_conversation(id)
                return {"id": id, "object": "conversation.deleted", "deleted": True}
            case "POST", ["_control", "gates", name]:
                server.gate(name).set()
                return {"released": name}
            case "POST", ["_control", "faults"]:
                make, times = _FAULTS[sent.pop("fault")], int(sent.pop("times", 1))
                server.fail(make(**sent), times=times)
                return {"times": times}
            case "GET", ["_control", "counters"]:
                return asdict(server.counters)
            case _:
                raise Refusal(f"Invalid URL ({exchange.method} {path})", status=404, kind="invalid_request_error")
