"""The Python of a page of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    """Its Python blocks, in order."""
    return re.findall(r"^```python\n(.*?)^```$", (_DOCS / page).read_text(), flags=re.MULTILINE | re.DOTALL)
