"""The provider as a process of its own: ``python -m tests.support.provider --port-file FILE --log FILE``.

It follows the prompt language (see ``language``). The port file is written once the server listens and
holds its base URL. SIGTERM and SIGINT end it.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from tests.support.provider.server import ProviderServer


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.provider", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="the port; 0 takes a free one")
    parser.add_argument("--port-file", type=Path, help="where to write the base URL once the server listens")
    parser.add_argument("--log", type=Path, help="a JSONL file for requests and finished answers, fsynced")
    parser.add_argument("--no-bodies", action="store_true", help="leave request and answer bodies out of the log")
    parser.add_argument("--api-key", help="the only key to accept")
    parser.add_argument("--context-limit-tokens", type=int, help="the context of every model")
    parser.add_argument("--secret", default="laneway-tests", help="what signatures are made with")
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    server = ProviderServer(
        port=arguments.port,
        api_key=arguments.api_key,
        context_limit_tokens=arguments.context_limit_tokens,
        secret=arguments.secret,
        log=arguments.log,
        log_bodies=not arguments.no_bodies,
        keep_bodies=False,
    )
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with server:
        if arguments.port_file is not None:
            partial = arguments.port_file.with_suffix(".partial")
            partial.write_text(server.url, encoding="utf-8")
            partial.replace(arguments.port_file)
        else:
            print(server.url, flush=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(_serve(_arguments()))
