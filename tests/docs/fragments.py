"""Runs what a page shows of a program: a piece, in which the page leaves out what it has said before."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import laneway
from laneway import Laneway, Settings

Names = dict[str, Any]


@asynccontextmanager
async def played(
    source: str,
    names: Names,
    settings: Settings,
    *,
    after: Mapping[int, Callable[[Names], Awaitable[None]]] | None = None,
) -> AsyncIterator[Names]:
    """Run a piece, statement by statement, with `await` anywhere.

    Once there is an `app`, its worker runs, and there are a `client` of it and a `conversation`, which a page takes for
    granted. All public names of the package are imported.

    Args:
        source: the piece.
        names: what the page leaves out.
        settings: where the servers are.
        after: what happens elsewhere after a statement, by its number from 0.

    Yields:
        the names that there are in the end, while the worker still runs.
    """
    here: Names = {name: getattr(laneway, name) for name in laneway.__all__} | names
    async with AsyncExitStack() as running:

        async def serve() -> None:
            app = here.get("app")
            if isinstance(app, Laneway) and "client" not in here:
                await running.enter_async_context(app.worker(settings))
                here["client"] = await running.enter_async_context(app.client(settings))
                here["conversation"] = here["client"].conversation(uuid4().hex)

        await serve()
        for number, statement in enumerate(ast.parse(source).body):
            module = ast.Module([statement], [])
            code = compile(module, "<a page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            with warnings.catch_warnings():
                # Constructing an adapter with a processor says once what that costs.
                warnings.filterwarnings("ignore", category=UserWarning)
                value = eval(code, here)
            if inspect.isawaitable(value):
                await value
            await serve()
            if after is not None and number in after:
                await after[number](here)
        yield here
