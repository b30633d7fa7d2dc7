"""The provider as a child process, for tests that kill everything else."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.provider.ledger import read_ledger
from tests.support.provider.transcript import Json

_ROOT = Path(__file__).resolve().parents[3]


class ProviderProcess:
    """Runs ``python -m tests.support.provider`` with its files in ``folder``.

    Entered again on the same folder, it takes the same port and goes on with the same ledger.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / "requests.jsonl"
        self.url = ""
        self._url_file = folder / "provider.url"
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        port = self.url.rpartition(":")[2] or "0"
        self._url_file.unlink(missing_ok=True)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.provider",
            *("--port", port, "--port-file", str(self._url_file), "--log", str(self.log)),
            *self._arguments,
            cwd=_ROOT,
        )
        try:
            async with asyncio.timeout(90):
                while not self._url_file.exists():
                    if self._process.returncode is not None:
                        raise RuntimeError(f"the provider ended with {self._process.returncode} before it listened")
                    await asyncio.sleep(0.02)
        except BaseException:
            await self._end()
            raise
        self.url = self._url_file.read_text(encoding="utf-8")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI clients; ``url`` is the one for Anthropic's."""
        return f"{self.url}/v1"

    def events(self, event: str | None = None) -> list[Json]:
        """The events of the ledger so far, of one kind or all."""
        return [entry for entry in read_ledger(self.log) if event in (None, entry["event"])]

    async def wait_for(self, event: str, number: int, timeout_seconds: float = 90.0) -> Json:
        """The ``number``-th event of a kind, counted from 1, as soon as it is in the ledger."""
        async with asyncio.timeout(timeout_seconds):
            while len(found := self.events(event)) < number:
                await asyncio.sleep(0.01)
        return found[number - 1]

    async def release(self, gate: str) -> None:
        """Release a gate."""
        await asyncio.to_thread(self._control, f"gates/{gate}", {})

    async def fail(self, fault: str, *, times: int = 1, **arguments: Any) -> None:
        """Let the next ``times`` requests meet a fault: the name and arguments of a function in ``faults``."""
        await asyncio.to_thread(self._control, "faults", {"fault": fault, "times": times, **arguments})

    def _control(self, path: str, body: Json) -> None:
        request = urllib.request.Request(
            f"{self.url}/_control/{path}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60):
            pass
