"""The tools: safe, bounded, and of one mind with the answers that are worked out without them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples.demo.folder import MAX_LISTED, MAX_TEXT_BYTES, Folder, Refused
from examples.demo.truth import Surveyor


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("src", ".git", "__pycache__", "x.egg-info", "node_modules"):
        (root / name).mkdir(parents=True)
        (root / name / "inner.py").write_text("inner = 1\n")
    (root / "a.py").write_text("one\ntwo words\n\nfour")
    (root / "b.bin").write_bytes(b"text\0")
    (root / "big.txt").write_text("x" * (MAX_TEXT_BYTES + 1))
    (tmp_path / "secret.txt").write_text("secret\n")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "up").symlink_to(tmp_path)
    return root


def test_files_are_listed_in_order_without_links_caches_and_version_control(root: Path) -> None:
    by_path = Folder(root).list_files("", "path")
    assert [file["path"] for file in by_path["files"]] == ["a.py", "b.bin", "big.txt", "src/inner.py"]
    by_size = Folder(root).list_files(".py", "largest")
    assert by_size == {
        "total": 2,
        "files": [{"path": "a.py", "size_bytes": 19}, {"path": "src/inner.py", "size_bytes": 10}],
    }


def test_a_long_listing_is_cut_and_says_how_many_there_are(tmp_path: Path) -> None:
    for number in range(MAX_LISTED + 5):
        (tmp_path / f"{number:03}.txt").touch()
    listing = Folder(tmp_path).list_files("", "path")
    assert listing["total"] == MAX_LISTED + 5
    assert len(listing["files"]) == MAX_LISTED


def test_lines_are_read_with_the_file_s_length(root: Path) -> None:
    assert Folder(root).read_lines("a.py", 2, 2) == {
        "path": "a.py",
        "total_lines": 4,
        "first_line": 2,
        "lines": ["two words", ""],
    }
    assert Folder(root).read_lines("a.py", 9, 2)["lines"] == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret.txt", "only paths inside"),
        ("src/../../secret.txt", "only paths inside"),
        ("/etc/passwd", "only paths inside"),
        ("", "only paths inside"),
        ("a.py\0", "only paths inside"),
        ("./a.py", "only paths inside"),
        ("link.txt", "symbolic links"),
        ("up/secret.txt", "symbolic links"),
        (".git/inner.py", "left out"),
        ("b.bin", "binary file"),
        ("big.txt", "at most"),
        ("src", "no regular file"),
        ("src/", "only paths inside"),
        ("missing", "cannot be read"),
        ("a.py/b", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("\udcff", "cannot be read"),
    ],
)
def test_what_must_not_be_read_is_refused_with_its_reason(root: Path, path: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        Folder(root).read_lines(path, 1, 5)


def test_a_pipe_is_refused_at_once(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(Refused, match="no regular file"):
        Folder(root).read_lines("pipe", 1, 1)


@pytest.mark.parametrize(("first", "count"), [(0, 1), (-1, 1), (1, 0), (1, 1000)])
def test_lines_outside_of_the_bounds_are_refused(root: Path, first: int, count: int) -> None:
    with pytest.raises(Refused, match="first_line counts from 1"):
        Folder(root).read_lines("a.py", first, count)


@pytest.mark.parametrize("word", ["", "two words", "a.*", "(", "x\n"])
def test_only_a_single_word_is_searched_for(root: Path, word: str) -> None:
    with pytest.raises(Refused, match="give one word"):
        Folder(root).search_word(word)


def test_a_word_is_found_whole_with_its_first_line(root: Path) -> None:
    found = Folder(root).search_word("words")
    assert found == {
        "word": "words",
        "total": 1,
        "paths": ["a.py"],
        "first_path": "a.py",
        "first_line": 2,
        "first_text": "two words",
    }
    assert Folder(root).search_word("word")["total"] == 0


_texts = st.text(st.sampled_from("ab_é \r\n\t\v.日\0"), max_size=30)
_names = st.sampled_from(
    ["a.py", "b c.py", "é/日.py", "é/x.md", "z.tar.gz", "build/x.py", "n\nl.py", ".hidden", "d/.e/f.py"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(_names, _texts))
def test_tools_and_truth_agree_on_any_folder(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]) -> None:
    root = tmp_path_factory.mktemp("folder")
    for name, text in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())
    folder, survey = Folder(root), Surveyor(root).survey()
    assert [f["path"] for f in folder.list_files("", "path")["files"]] == [f.path for f in survey.files]
    assert [f["path"] for f in folder.list_files(".py", "largest")["files"]] == [f.path for f in survey.ending(".py")]
    for word in ("a", "ab", "é", "b_"):
        assert folder.search_word(word)["paths"] == [file.path for file in survey.with_word(word)]
    for file in survey.files:
        if file.text is None:
            with pytest.raises(Refused, match=file.reason):
                folder.read_lines(file.path, 1, 1)
        else:
            shown = folder.read_lines(file.path, 1, 40)
            assert shown["total_lines"] == len(file.lines)
            assert shown["lines"] == [line.rstrip("\r") for line in file.lines]
