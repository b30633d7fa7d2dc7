"""A tool server whose list of tools grows, on standard input and output, or on HTTP at a port."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from mcp.server import MCPServer

from tests.support.stops import append


def main(ledger: Path, port: int | None) -> None:
    server = MCPServer("growing")
    append(ledger, "connected")

    @server.tool()
    def double(number: int) -> int:
        """Twice the number."""
        append(ledger, f"double {number}")
        return number * 2

    @server.tool()
    def learn(name: str) -> str:
        """Have one more tool from now on."""

        def learned() -> str:
            append(ledger, name)
            return f"{name} done"

        server.add_tool(learned, name=name, description="Learned.")
        return f"learned {name}"

    @server.tool()
    async def linger() -> str:
        """Take a while."""
        append(ledger, "linger")
        await asyncio.sleep(3)
        return "lingered"

    @server.tool()
    async def block() -> str:
        """Take a while, and answer nothing else meanwhile."""
        append(ledger, "block")
        time.sleep(3)
        return "blocked"

    @server.tool()
    def end() -> str:
        """End the server."""
        os._exit(1)

    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
