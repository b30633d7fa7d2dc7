"""The right answers, from the file system itself and not from the tools.

Only the rules are shared with the tools: what is left out, and the bounds. What they lead to is worked out anew here.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from examples.demo.folder import MAX_FILES, MAX_TEXT_BYTES, is_left_out

__all__ = ["File", "Survey", "Surveyor"]

_Stamp: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class File:
    """A file of the folder.

    Attributes:
        path: from the folder, with `/` between names.
        size_bytes: as the file system has it.
        text: None where it is not shown: binary, too large, or not readable.
    """

    path: str
    size_bytes: int
    text: str | None
    reason: str = ""

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, without their ends."""
        pieces = (self.text or "").split("\n")
        return pieces[:-1] if pieces[-1] == "" else pieces

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words: runs of letters, digits and underscores."""
        return frozenset(re.findall(r"\w+", self.text or ""))

    @property
    def suffix(self) -> str:
        """What its name ends in, from the last dot on; empty where that is no plain suffix."""
        found = re.search(r"[^/]\.[A-Za-z0-9_]{1,10}$", self.path)
        return self.path[found.start() + 1 :] if found else ""


@dataclass(frozen=True)
class Survey:
    """The files of a folder at one time, in order."""

    files: tuple[File, ...]

    def ending(self, suffix: str) -> list[File]:
        """The files with a suffix, the largest first; all files for an empty one."""
        return sorted((f for f in self.files if f.path.endswith(suffix)), key=lambda f: (-f.size_bytes, f.path))

    def with_word(self, word: str) -> list[File]:
        """The text files that have a word."""
        return [file for file in self.files if word in file.words]

    def get(self, path: str) -> File:
        """The file of that path; one without text where there is none by now."""
        return next((f for f in self.files if f.path == path), File(path, 0, None, "cannot be read"))

    def main_suffix(self) -> str:
        """`.py` where there are any, else the suffix that most text files have, else none."""
        counts = Counter(file.suffix for file in self.files if file.text is not None and file.suffix)
        if counts[".py"]:
            return ".py"
        return min(counts, key=lambda suffix: (-counts[suffix], suffix), default="")

    def telling_words(self, count: int) -> list[str]:
        """Words worth asking for: long ones, that some files have and most have not."""
        places: dict[str, set[str]] = {}
        for file in self.files:
            for word in file.words:
                if len(word) >= 3 and word.isalpha() and word.islower():
                    places.setdefault(word, set()).add(file.path)
        few = max(2, min(8, len(self.files) // 2))
        ranked = sorted(
            places,
            # In two to eight files, and long, come first; whatever there is comes after that.
            key=lambda word: (not 2 <= len(places[word]) <= few, len(word) < 8, -len(places[word]), -len(word), word),
        )
        chosen = ranked[:1]
        while chosen and len(chosen) < count:
            # Words that share some files make good questions; those that always come together make dull ones.
            fresh = [word for word in ranked[:200] if all(places[word] != places[other] for other in chosen)]
            if not fresh:
                break
            chosen.append(max(fresh, key=lambda word: len(places[word] & places[chosen[-1]])))
        chosen += [word for word in (*ranked, "laneway", "durable", "agent", "turn") if word not in chosen]
        return chosen[:count]


class Surveyor:
    """Surveys a folder again and again, reading only what has changed in between."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[_Stamp, File]] = {}

    def survey(self) -> Survey:
        """The folder as it is now."""
        found: list[tuple[tuple[str, ...], os.stat_result]] = []
        self._collect((), found)
        files: list[File] = []
        for parts, status in found:
            path = "/".join(parts)
            stamp = (status.st_size, status.st_mtime_ns, status.st_ino)
            held = self._known.get(path)
            if held is None or held[0] != stamp:
                held = self._known[path] = (stamp, self._read(path, status.st_size))
            files.append(held[1])
        return Survey(tuple(files))

    def _collect(self, parts: tuple[str, ...], found: list[tuple[tuple[str, ...], os.stat_result]]) -> None:
        try:
            names = sorted(place.name for place in self._root.joinpath(*parts).iterdir())
        except OSError:
            return
        for name in filter(str.isprintable, names):
            place = self._root.joinpath(*parts, name)
            if len(found) >= MAX_FILES or place.is_symlink():
                continue
            if place.is_dir():
                if not is_left_out(name):
                    self._collect((*parts, name), found)
            elif place.is_file():
                found.append(((*parts, name), place.stat()))

    def _read(self, path: str, size: int) -> File:
        if size > MAX_TEXT_BYTES:
            return File(path, size, None, f"at most {MAX_TEXT_BYTES} are read")
        try:
            raw = b""
            if size:
                with (self._root / path).open("rb") as file:
                    raw = file.read(size)
        except OSError:
            return File(path, size, None, "cannot be read")
        if 0 in raw:
            return File(path, size, None, "binary")
        return File(path, size, str(raw, "utf-8", "replace"))
