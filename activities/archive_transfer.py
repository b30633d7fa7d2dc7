"""Archives that go with an imported history, so that what its references name can be read in its new lane."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from laneway.activities.adapter import IMPORT_MARK, Adapter
from laneway.errors import InvalidInput
from laneway.history.archives import ArchivedItem

__all__ = ["checked_archives", "opened_import", "with_archives"]

_MARK: Final = IMPORT_MARK + b'{"archives":'  # no adapter's own form: that begins with a list


def checked_archives(archives: object, adapter: Adapter[Any]) -> list[ArchivedItem]:
    """What was archived elsewhere, after it was checked whole.

    Args:
        archives: as `Conversation.archives` gives it.
        adapter: of the agent that is to read it.

    Raises:
        InvalidInput: it is no such thing, or something else than its reference names, or of another framework.
    """
    if not isinstance(archives, Mapping):
        raise InvalidInput(f"the archives are a {type(archives).__name__}: give what conversation.archives() gave")
    found: list[ArchivedItem] = []
    for reference, blob in cast("Mapping[object, object]", archives).items():
        try:
            item = ArchivedItem.from_bytes(cast("bytes", blob))
            messages = item.payloads if item.kind == "exchanges" else ()
            for payload in messages:
                adapter.decode(payload)
        except Exception as error:  # whatever the framework raises for what it cannot read
            raise InvalidInput(
                f"archive {reference!r} cannot be read by {adapter.shortname}: {type(error).__name__}: {error}. Give "
                "what conversation.archives() gave, of an agent of the same framework"
            ) from error
        if item.reference != reference:
            raise InvalidInput(f"archive {reference!r} was altered: what it holds is {item.reference!r}")
        found.append(item)
    return found


def with_archives(blob: bytes, items: Sequence[ArchivedItem]) -> bytes:
    """The stored form of an import with archives. It begins with `IMPORT_MARK` as well."""
    archives = json.dumps([b64encode(item.to_bytes()).decode() for item in items])
    return b"".join((_MARK, archives.encode(), b"}}\n", blob)) if items else blob


def opened_import(blob: bytes) -> tuple[bytes, list[ArchivedItem]]:
    """The adapter's form of an import, and the archives that came with it."""
    if not blob.startswith(_MARK):
        return blob, []
    head, _, rest = blob.partition(b"\n")
    archives: list[str] = json.loads(head)["import"]["archives"]
    return rest, [ArchivedItem.from_bytes(b64decode(one)) for one in archives]
