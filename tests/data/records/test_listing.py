import os
import sys
from pathlib import Path

import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts
from clozeworks.data.records.listing import kind_of, list_files
from clozeworks.data.text.reader import Reader, Reading

posix = pytest.mark.skipif(sys.platform == "win32", reason="links and rights of POSIX")


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def refusal(*paths) -> str:
    with pytest.raises(InputError) as caught:
        list(Reader(list(paths), Reading(), None).documents(Counts()))
    return str(caught.value)


def names(folder: Path, *paths) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in list_files(paths)]


def test_every_known_ending_is_found_below_a_directory(tmp_path):
    known = ["a.TXT", "b/c.ndjson.bz2", "b/d.csv.xz", "e.md", "f.parquet", "g.feather", "h.tsv.zst", "i.text.gz"]
    make(tmp_path, *known, "x.json", "y.parquet.gz", "z.gz", ".hidden.txt", ".git/a.txt", "noending")
    assert names(tmp_path, tmp_path) == sorted(known)


@pytest.mark.parametrize(
    ("name", "kind"), [("a.b.TXT.GZ", ".txt"), ("a.jsonl", ".jsonl"), ("a.gz", ""), ("a", ""), ("x.csv.xz", ".csv")]
)
def test_the_kind_of_a_file(name, kind):
    assert kind_of(Path(name)) == kind


def test_patterns(tmp_path):
    make(tmp_path, "a.txt", "b.txt.gz", "c.jsonl", "d/e.jsonl", "d/f/g.jsonl", "d/x.pdf", "h/i.txt")
    assert names(tmp_path, tmp_path / "*.txt*") == ["a.txt", "b.txt.gz"]
    assert names(tmp_path, str(tmp_path / "**" / "*.jsonl")) == ["c.jsonl", "d/e.jsonl", "d/f/g.jsonl"]
    assert names(tmp_path, tmp_path / "[dh]") == ["d/e.jsonl", "d/f/g.jsonl", "h/i.txt"]
    assert names(tmp_path, tmp_path / "?.txt", tmp_path / "a.txt") == ["a.txt"]
    assert names(tmp_path, tmp_path / "**") == names(tmp_path, tmp_path)
    assert "no file fits" in refusal(tmp_path / "*.csv")
    assert "x.pdf only" in refusal(tmp_path / "d" / "*.pdf")
    make(tmp_path, "odd[1].txt")
    assert names(tmp_path, tmp_path / "odd[1].txt") == ["odd[1].txt"]  # a name that exists is no pattern


@posix
def test_links_that_lead_nowhere(tmp_path):
    make(tmp_path, "a.txt")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nothing.txt")
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    (tmp_path / "fine.txt").symlink_to(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    counts = Counts()
    reader = Reader(tmp_path, Reading(), None)
    for _ in range(2):
        counts = Counts()
        assert [document.text for document in reader.documents(counts)] == ["a.txt"]  # named twice, read once
        assert counts.dangling_links == 2
    assert "a link to" in refusal(tmp_path / "gone.txt")
    assert "not a regular file" in refusal(tmp_path / "pipe.txt")


@posix
@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc here")
def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "memory.txt").symlink_to("/proc/self/mem")
    assert "a readable file is needed" in refusal(tmp_path / "memory.txt")
    assert "a readable file is needed" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("path", "needles"),
    [
        ("", ["an empty path"]),
        ("x" * 300, ["a name of 300 characters", "rows"]),
        ("Some text that is " + "very " * 1000 + "long.", ["characters", "rows"]),
        ("a\0b", ["no such file"]),
        ("nowhere/at/all.txt", ["does not exist either"]),
    ],
)
def test_strange_paths_are_refused_in_a_sentence(path, needles):
    message = refusal(path)
    assert all(needle in message for needle in needles), message
    assert len(message) < 400


def test_a_file_that_vanishes_is_reported(tmp_path):
    make(tmp_path, "a.txt")
    reader = Reader(tmp_path / "a.txt", Reading(), None)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(InputError, match="a readable file"):
        list(reader.documents(Counts()))


def test_files_about_the_text_are_not_the_text(tmp_path):
    for name in ("README.md", "LICENSE.txt", "readme.txt", "a.md", "readmeagain.txt", ".hidden.txt"):
        (tmp_path / name).write_text("text")
    assert [file.name for file in list_files([tmp_path])] == ["a.md", "readmeagain.txt"]
    assert list_files([tmp_path / "README.md"]) == [tmp_path / "README.md"]


def test_what_is_passed_over_is_counted(tmp_path):
    make(tmp_path, "a.txt", "b.md", "c.pdf", "README", "README.md", ".hidden", ".git/x", "d/e.docx", "d/f.txt")
    counts = Counts()
    assert len(list(Reader(tmp_path, Reading(), None).documents(counts))) == 3
    assert counts.other_files == 4
    counts = Counts()
    assert len(list(Reader([tmp_path, tmp_path / "README.md"], Reading(), None).documents(counts))) == 4
    assert counts.other_files == 3
    counts = Counts()
    list(Reader(str(tmp_path / "*"), Reading(), None).documents(counts))
    assert counts.other_files == 3  # c.pdf, README, d/e.docx: what a pattern names itself is read
    counts = Counts()
    list(Reader(tmp_path / "a.txt", Reading(), None).documents(counts))
    assert counts.other_files == 0


@pytest.mark.parametrize("texts", [["A sentence. Another one.", "More."], ["今天天气很好。"], ["one/two and three"]])
def test_texts_in_place_of_paths(texts):
    assert "pass iter(texts) or rows" in refusal(*texts)
    assert "iter" not in refusal("nothing")
    assert "iter" not in refusal("my corpus.txt")
