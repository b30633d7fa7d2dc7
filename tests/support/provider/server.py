"""The server: takes a request, holds it to the rules, asks the script, delivers, and keeps the books."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.provider.answers import Answer, as_answer
from tests.support.provider.apis import API_PATHS, Apis
from tests.support.provider.connection import Closer, Connection, Exchange
from tests.support.provider.control import Control
from tests.support.provider.delivery import Delivery
from tests.support.provider.errors import Refusal, error_body, status_refusal
from tests.support.provider.faults import Fault, Reset, Stall, Status, StreamError
from tests.support.provider.language import prompt_script
from tests.support.provider.ledger import Ledger, LedgerEvent
from tests.support.provider.records import Counters, RequestRecord
from tests.support.provider.rendering import Checked, Ids
from tests.support.provider.scripts import Script
from tests.support.provider.signatures import Signer
from tests.support.provider.transcript import ProviderRequest

_PORTS: set[int] = set()


class ProviderServer:
    """A strict model provider on a loopback port, as an asynchronous context manager.

    ``script`` makes the answers; without one, the prompts say what to answer (see ``language``).
    ``api_key`` is the only key accepted; ``None`` takes any but an empty one. ``models`` are the known
    models; ``None`` knows names as the providers give them (``gpt-…``, ``o4…``, ``claude-…``) and ``test-…``.
    ``context_limit_tokens`` is every model's context. ``bind_thinking``: ``None`` binds signed thinking
    to its prefix on the models that do, ``True`` on all, ``False`` on none. ``alternate_roles`` refuses
    consecutive messages of one role (Messages). ``keep_bodies=False`` forgets request bodies once
    answered, for very long runs. A script that raises is a 500 and raises again when the server is left.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        port: int = 0,
        api_key: str | None = None,
        models: Collection[str] | None = None,
        context_limit_tokens: int | None = None,
        bind_thinking: bool | None = None,
        alternate_roles: bool = False,
        keep_bodies: bool = True,
        secret: str = "laneway-tests",
        run: str | None = None,
        log: Path | None = None,
        log_bodies: bool = True,
    ) -> None:
        self.script: Script = script or prompt_script()
        self.requests: list[RequestRecord] = []
        self.counters = Counters()
        self.script_errors: list[Exception] = []
        self.apis = Apis(
            ids=Ids(run) if run is not None else Ids(),
            signer=Signer(secret),
            api_key=api_key,
            models=models,
            context_limit_tokens=context_limit_tokens,
            bind_thinking=bind_thinking,
            alternate_roles=alternate_roles,
        )
        self._port = port
        self._keep_bodies = keep_bodies
        self._ledger = Ledger(log, bodies=log_bodies) if log is not None else None
        self._faults: deque[tuple[Fault, Callable[[RequestRecord], bool] | None]] = deque()
        self._gates: dict[str, asyncio.Event] = {}
        self._arrived = asyncio.Condition()
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._clients: list[Callable[[], Awaitable[object]]] = []
        self._control = Control(self)

    async def __aenter__(self) -> Self:
        self._server = await self._listen()
        self.log("started", url=self.url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        await asyncio.gather(*(close() for close in self._clients))
        self._server.close()
        await asyncio.gather(*(connection.stop() for connection in list(self._connections)))
        if self._ledger is not None:
            self._ledger.close()
        if self.script_errors and error is None:
            raise self.script_errors[0]

    async def _listen(self) -> asyncio.Server:
        """A server on a port that no other of this process had: clients are kept by address, as in LangChain."""
        loop, refused = asyncio.get_running_loop(), list[asyncio.Server]()
        try:
            while True:
                server = await loop.create_server(
                    lambda: Connection(self._handle, self._connections), "127.0.0.1", self._port
                )
                port: int = server.sockets[0].getsockname()[1]
                if self._port or port not in _PORTS:
                    break
                refused.append(server)
        finally:
            for one in refused:
                one.close()
        _PORTS.add(port)
        self._port = port
        return server

    def on_exit(self, close: Callable[[], Awaitable[object]]) -> None:
        """Have a client closed before the server goes."""
        self._clients.append(close)

    @property
    def url(self) -> str:
        """The base URL for Anthropic clients."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI clients."""
        return f"{self.url}/v1"

    def gate(self, name: str) -> asyncio.Event:
        """The gate of that name: what is held at it goes on once it is set."""
        return self._gates.setdefault(name, asyncio.Event())

    def fail(self, fault: Fault, *, times: int = 1, where: Callable[[RequestRecord], bool] | None = None) -> None:
        """Let the next ``times`` requests (of those that ``where`` picks) meet a fault."""
        self._faults.extend([(fault, where)] * times)

    async def wait_for_request(self, number: int, timeout_seconds: float = 10.0) -> RequestRecord:
        """The ``number``-th request, counted from 1, as soon as it has come."""
        async with asyncio.timeout(timeout_seconds), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    def forget_response(self, response_id: str) -> None:
        """Let a stored response expire (Responses)."""
        self.apis.responses.responses.pop(response_id, None)

    def forget_conversation(self, conversation_id: str) -> None:
        """Delete a server-owned conversation (Responses)."""
        self.apis.responses.conversations.pop(conversation_id, None)

    def log(self, event: LedgerEvent, **fields: object) -> None:
        """Write to the ledger, if there is one."""
        if self._ledger is not None:
            self._ledger.write(event, **fields)

    async def _handle(self, exchange: Exchange) -> None:
        path = exchange.target.partition("?")[0]
        api = API_PATHS.get(path) if exchange.method == "POST" else None
        if api is None:
            await self._control.answer(exchange, path)
            return
        try:
            body = json.loads(exchange.body)
        except ValueError:
            body = None
        record = RequestRecord(
            index=len(self.requests),
            api=api,
            path=exchange.target,
            headers=exchange.headers,
            body=body if isinstance(body, dict) else {},
            arrived_at=time.monotonic(),
        )
        exchange.on_close = lambda at, by: _closed(record, at, by)
        self.counters.requests += 1
        self.log("request", n=record.index, api=api, body=record.body)
        async with self._arrived:
            self.requests.append(record)
            self._arrived.notify_all()
        try:
            await self._answer(exchange, record, readable=isinstance(body, dict))
        except asyncio.CancelledError:
            if not record.completed:
                self._aborted(record)
            raise
        except Exception as error:
            self.script_errors.append(error)  # an answer that cannot be rendered: no client may hang on it
            self._aborted(record)
            exchange.reset()
        finally:
            record.progress.ended.set()
            if not self._keep_bodies:
                record.forget_body()

    async def _answer(self, exchange: Exchange, record: RequestRecord, *, readable: bool) -> None:
        request_id = self.apis.ids.new("req_")
        fault = self._take_fault(record)
        try:
            if fault is not None and await self._early_fault(exchange, record, fault):
                return
            checked = self.apis.check(record.api, exchange.headers, record.body if readable else None)
            answer = await self._ask(record, checked)
            fault = fault or answer.fault
            if answer.fault is not None and await self._early_fault(exchange, record, answer.fault):
                return
        except Refusal as refusal:
            if record.fault is None:
                record.progress.refusal = refusal.message
                self.counters.refused += 1
                self.log("refused", n=record.index, status=refusal.status, message=refusal.message)
            await self._refuse(exchange, record, refusal, request_id)
            return
        rendered = self.apis.render(record.api, record.body, checked, answer)
        record.progress.answer_id = rendered.answer_id
        record.progress.answer_body = rendered.body
        self.counters.made += 1
        self.log("made", n=record.index, answer=rendered.answer_id)
        if answer.gate is not None:
            await self.hold(Stall(gate=answer.gate))
        if answer.delay_seconds:
            await asyncio.sleep(answer.delay_seconds)
        delivery = Delivery(exchange, record.api, request_id, bool(record.body.get("stream")), self.hold)
        record.progress.status = 200
        if not await delivery.send(rendered, answer, fault):
            self._aborted(record)
            return
        record.progress.completed_at = time.monotonic()
        self.counters.finished += 1
        if rendered.on_finished is not None:
            rendered.on_finished()
        self.log("finished", n=record.index, answer=rendered.answer_id, body=rendered.body)

    def _aborted(self, record: RequestRecord) -> None:
        record.progress.aborted = True
        self.counters.aborted += 1
        self.log("aborted", n=record.index, answer=record.answer_id)

    def _take_fault(self, record: RequestRecord) -> Fault | None:
        for position, (fault, where) in enumerate(self._faults):
            if where is None or where(record):
                del self._faults[position]
                return fault
        return None

    async def _early_fault(self, exchange: Exchange, record: RequestRecord, fault: Fault) -> bool:
        """Book a fault and carry out what comes before an answer; whether that was all."""
        record.progress.fault = type(fault).__name__.lower()
        self.counters.faulted += 1
        self.log("fault", n=record.index, fault=record.fault)
        match fault:
            case Status():
                raise status_refusal(record.api, fault.code, message=fault.message, headers=dict(fault.headers))
            case StreamError() if not record.body.get("stream"):
                raise status_refusal(record.api, fault.code)
            case Reset():
                self._aborted(record)
                exchange.reset()
                return True
            case Stall(at="start"):
                await self.hold(fault)
            case _:
                pass
        return False

    async def hold(self, stall: Stall) -> None:
        """Wait as a stall says: for a time, for a gate, or until the client goes."""
        gate = self.gate(stall.gate) if isinstance(stall.gate, str) else stall.gate
        if gate is not None:
            await gate.wait()
        elif stall.seconds is not None:
            await asyncio.sleep(stall.seconds)
        else:
            await asyncio.Event().wait()

    async def _ask(self, record: RequestRecord, checked: Checked) -> Answer:
        request = ProviderRequest(
            index=record.index,
            api=record.api,
            model=str(record.body["model"]),
            stream=bool(record.body.get("stream")),
            body=record.body,
            headers=record.headers,
            transcript=checked.transcript,
            tools=checked.tools,
        )
        record.progress.request = request
        try:
            made = self.script(request)
            answer = as_answer(await made if inspect.isawaitable(made) else made)
        except Exception as error:
            self.script_errors.append(error)
            raise Refusal(f"the script failed: {error!r}", status=500) from error
        record.progress.answer = answer
        return answer

    async def _refuse(self, exchange: Exchange, record: RequestRecord, refusal: Refusal, request_id: str) -> None:
        body = json.dumps(error_body(record.api, refusal, request_id)).encode()
        name = "request-id" if record.api == "messages" else "x-request-id"
        record.progress.status = refusal.status
        await exchange.respond(
            refusal.status, {"content-type": "application/json", name: request_id, **refusal.headers}, body
        )
        record.progress.completed_at = time.monotonic()


def _closed(record: RequestRecord, at: float, by: Closer) -> None:
    record.progress.closed_at = at
    record.progress.closed_by = by
    record.progress.closed.set()
