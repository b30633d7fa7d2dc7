"""Which line of the user's own code an error came from. The rest of a traceback is frameworks, Laneway and Python."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

__all__ = ["own_line"]

_LANEWAY = Path(__file__).parent.parent
_FOREIGN = frozenset({"site-packages", "dist-packages"})


def own_line(error: BaseException) -> str | None:
    """Where the error came from, as `file, line number: code`; None where no line of the user's ran."""
    if isinstance(error, SyntaxError) and error.filename and _is_own(Path(error.filename)):
        return _describe(error.filename, error.lineno, error.text)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_own(Path(frame.filename)):
            return _describe(frame.filename, frame.lineno, frame.line)
    return None


def _is_own(path: Path) -> bool:
    if not path.is_absolute() or not path.exists():  # `<frozen importlib._bootstrap>`, `<string>`
        return False
    installed = path.is_relative_to(sysconfig.get_path("stdlib")) or not _FOREIGN.isdisjoint(path.parts)
    return not installed and not path.is_relative_to(_LANEWAY)


def _describe(filename: str, number: int | None, code: str | None) -> str:
    path = Path(filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    line = (code or "").strip()
    return f"{shown}, line {number}{f': {line}' if line else ''}"
