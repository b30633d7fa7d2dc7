"""What the agent's tools may see of a folder: regular text files inside it, in one order, within bounds.

Symbolic links are never followed, folders that hold no sources are left out, and nothing larger than the bounds below
is read, so that any folder can be asked about, a home directory or `/` included.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict

__all__ = [
    "MAX_FILES",
    "MAX_LINE_CHARS",
    "MAX_TEXT_BYTES",
    "Excerpt",
    "FileSize",
    "Folder",
    "Found",
    "Listing",
    "Refused",
    "is_left_out",
]

MAX_FILES = 2_000
"""Files of a folder that are looked at; what comes after them in order is not."""
MAX_TEXT_BYTES = 256 * 1024
"""The largest file that is read or searched."""
MAX_LISTED = 50
MAX_LINES = 40
MAX_LINE_CHARS = 300
"""How much of a line is shown."""

_LEFT_OUT = frozenset({"__pycache__", "build", "dist", "node_modules", "venv"})


class Refused(Exception):
    """A tool does not do what it was asked; the message is for the model."""


class FileSize(TypedDict):
    """A file by its path from the folder, with `/` between names."""

    path: str
    size_bytes: int


class Listing(TypedDict):
    """Files that were asked for: how many there are, and the first of them in the order asked for."""

    total: int
    files: list[FileSize]


class Found(TypedDict):
    """Where a word stands: in how many files, in which, and the first line that has it."""

    word: str
    total: int
    paths: list[str]
    first_path: str | None
    first_line: int | None
    first_text: str | None


class Excerpt(TypedDict):
    """Lines of a file. Line numbers count from 1."""

    path: str
    total_lines: int
    first_line: int
    lines: list[str]


def is_left_out(folder_name: str) -> bool:
    """Whether a folder is not looked into: version control, environments, caches and what was built."""
    return folder_name.startswith(".") or folder_name in _LEFT_OUT or folder_name.endswith(".egg-info")


class Folder:
    """The files under `root`, as the tools show them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def list_files(self, ending: str, order: Literal["path", "largest"]) -> Listing:
        """The files whose name ends in `ending`."""
        found = [
            FileSize(path=path, size_bytes=entry.stat(follow_symlinks=False).st_size)
            for path, entry in self._files()
            if entry.name.endswith(ending)
        ]
        if order == "largest":
            found.sort(key=lambda file: (-file["size_bytes"], file["path"]))
        return Listing(total=len(found), files=found[:MAX_LISTED])

    def search_word(self, word: str) -> Found:
        """The text files that have `word` as a whole word, upper and lower case told apart.

        Raises:
            Refused: it is no single word.
        """
        if not re.fullmatch(r"\w+", word):
            raise Refused(f"{word!r} is refused: give one word, of letters, digits and underscores")
        pattern = re.compile(rf"\b{word}\b")
        found = Found(word=word, total=0, paths=[], first_path=None, first_line=None, first_text=None)
        for path, _ in self._files():
            try:
                text = self._text(path)
            except Refused:
                continue
            match = pattern.search(text)
            if match is None:
                continue
            if not found["total"]:
                number = text.count("\n", 0, match.start())
                found["first_path"], found["first_line"] = path, number + 1
                found["first_text"] = text.split("\n")[number].rstrip("\r")[:MAX_LINE_CHARS]
            found["total"] += 1
            if len(found["paths"]) < MAX_LISTED:
                found["paths"].append(path)
        return found

    def read_lines(self, path: str, first_line: int, count: int) -> Excerpt:
        """Lines of a text file.

        Raises:
            Refused: the path leads elsewhere, or the file cannot be shown.
        """
        if first_line < 1 or not 1 <= count <= MAX_LINES:
            raise Refused(f"refused: first_line counts from 1, and count is 1 to {MAX_LINES}")
        lines = self._text(path).split("\n")
        if not lines[-1]:
            lines.pop()
        chosen = lines[first_line - 1 : first_line - 1 + count]
        shown = [line.rstrip("\r")[:MAX_LINE_CHARS] for line in chosen]
        return Excerpt(path=path, total_lines=len(lines), first_line=first_line, lines=shown)

    def _files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """The regular files in the order of their path's parts."""
        waiting = [_entries(self._root)]
        prefixes = [""]
        seen = 0
        while waiting and seen < MAX_FILES:
            entry = next(waiting[-1], None)
            if entry is None:
                waiting.pop()
                prefixes.pop()
            elif entry.is_dir(follow_symlinks=False):
                if not is_left_out(entry.name):
                    waiting.append(_entries(Path(entry.path)))
                    prefixes.append(f"{prefixes[-1]}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                seen += 1
                yield prefixes[-1] + entry.name, entry

    def _text(self, path: str) -> str:
        raw = self._bytes(path)
        if b"\0" in raw:
            raise Refused(f"{path!r} is refused: it is a binary file")
        return raw.decode(errors="replace")

    def _bytes(self, path: str) -> bytes:
        parts = path.split("/")
        if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
            raise Refused(f"{path!r} is refused: only paths inside the folder are read, as list_files gives them")
        if any(is_left_out(part) for part in parts[:-1]):
            raise Refused(f"{path!r} is refused: that part of the folder is left out")
        place = self._root
        try:
            for part in parts:
                place = place / part
                if place.is_symlink():
                    raise Refused(f"{path!r} is refused: symbolic links are not followed")
            # The name may have become a link since; and a pipe's plain open would wait.
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise Refused(f"{path!r} is refused: it is no regular file")
                size = status.st_size
                if size > MAX_TEXT_BYTES:
                    raise Refused(f"{path!r} is refused: it has {size} bytes, and at most {MAX_TEXT_BYTES} are read")
                # No more than its size, since files of the kernel's claim none and can block.
                return os.read(descriptor, size) if size else b""
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no path"
            raise Refused(f"{path!r} is refused: it cannot be read ({reason})") from None


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            # Names that are not Unicode cannot be told to a model.
            entries = [entry for entry in found if entry.name.isprintable()]
    except OSError:
        return iter(())
    return iter(sorted(entries, key=lambda entry: entry.name))
