"""A tool server on standard input and output whose list of tools grows."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server import MCPServer

from tests.support.stops import append


def main(ledger: Path) -> None:
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

    server.run("stdio")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
