"""The `laneway` command. Nothing is imported before it is used: `laneway --help` must not wait for a framework."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process, and exit."""
    try:
        from laneway.cli.commands import run
        from laneway.cli.failures import leave

        leave(run(sys.argv[1:]))
    except KeyboardInterrupt:  # while the commands themselves are being imported
        sys.exit(130)
