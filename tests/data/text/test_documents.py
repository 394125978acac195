import gzip
import json
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts
from clozeworks.data.records.listing import list_files
from clozeworks.data.text import lines, parts
from clozeworks.data.text.reader import Reader, Reading


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    if path.suffix == ".gz":
        raw = gzip.compress(raw)
    elif path.suffix == ".zst":
        raw = zstandard.compress(raw)
    path.write_bytes(raw)
    return path


def texts(*paths: Path, **options) -> list[str]:
    counts = options.pop("counts", None)
    return [document.text for document in Reader(paths, Reading(**options)).documents(counts)]


def refusal(*paths: Path, **options) -> str:
    with pytest.raises(InputError) as caught:
        texts(*paths, **options)
    return str(caught.value)


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_text_and_rows_plain_and_compressed(tmp_path, packed):
    plain = write(tmp_path / f"a.txt{packed}", "One.\nTwo.\n\n\n \t\nThree.")
    rows = write(tmp_path / f"b.jsonl{packed}", '{"text": "Four.\\nFive."}\n\n{"text": "Six.", "title": "t"}\n')
    assert texts(plain, rows) == ["One.\nTwo.", "Three.", "Four.\nFive.", "Six."]


def test_zstd_of_several_frames_is_read_to_its_end(tmp_path):
    file = tmp_path / "a.txt.zst"
    file.write_bytes(zstandard.compress(b"One.\n\n") + zstandard.compress(b"Two."))
    assert texts(file) == ["One.", "Two."]


def test_directory_is_walked_in_order_and_other_files_are_passed_over(tmp_path):
    write(tmp_path / "b" / "z.txt", "Last.")
    write(tmp_path / "a.txt", "First.")
    write(tmp_path / "b" / "README", "no")
    write(tmp_path / ".git" / "x.txt", "no")
    write(tmp_path / "b" / "empty.txt", "")
    counts = Counts()
    assert texts(tmp_path, counts=counts) == ["First.", "Last."]
    assert (counts.documents, counts.empty_files, counts.other_files) == (2, 1, 1)
    assert texts(tmp_path, tmp_path / "a.txt") == ["First.", "Last."]  # named twice, read once
    for paths in ([tmp_path, tmp_path / "b" / "empty.txt"], [tmp_path / "b" / "empty.txt", tmp_path]):
        assert "an empty file" in refusal(*paths)  # a file that is named itself has to hold something


def test_marks_at_the_start_and_windows_lines(tmp_path):
    assert texts(write(tmp_path / "a.txt", b"\xef\xbb\xbfOne.\r\nTwo.\r\n\r\nThree.\r\n")) == ["One.\nTwo.", "Three."]
    assert texts(write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": "A\\r\\nB"}\r\n')) == ["A\nB"]


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.txt", b"", ["a.txt", "an empty file"]),
        ("a.txt", b"\n \n\n", ["a.txt", "no document"]),
        ("a.jsonl", b'{"text": " "}\n', ["a.jsonl", "no document"]),
        ("a.pdf", b"x", ["a.pdf", "'.pdf'", ".txt, .text, .md, .jsonl", ".gz, .zst, .xz, .bz2", ".parquet"]),
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', ["a.jsonl, line 2", "not JSON", "--errors skip"]),
        ("a.jsonl", b'["x"]\n', ["a.jsonl, line 1", "list"]),
        ("a.jsonl", b'{"txt": "x", "id": 1}\n', ["line 1", "no field 'text'", "txt, id", "did you mean txt?"]),
        ("a.jsonl", b'{"text": ["x"]}\n', ["line 1", "'text' holds a list of str", "a string is needed"]),
        ("a.txt", b"One.\nTw\xff\n", ["a.txt, line 2, byte 7", "0xff", "--errors replace or skip"]),
        ("a.txt", "今天的天气很好。".encode("gb18030"), ["line 1, byte 0", "GB18030", "--encoding gb18030 (or auto)"]),
        ("a.txt", "One".encode("utf-16"), ["line 1", "UTF-16-LE", "--encoding utf-16-le"]),
        ("a.txt", "One sentence stands.".encode("utf-16-le"), ["line 1", "NUL", "--encoding utf-16-le"]),
        ("a.jsonl", b'{"text": "\\ud800"}\n', ["line 1", "surrogate"]),
    ],
)
def test_bad_content_is_refused_with_its_place(tmp_path, name, content, parts):
    message = refusal(write(tmp_path / name, content))
    assert all(part in message for part in parts), message


def test_bad_paths_are_refused_with_what_to_do(tmp_path):
    write(tmp_path / "corpus.txt", "x")
    assert "did you mean" in refusal(tmp_path / "corpsu.txt")
    assert "corpus.txt?" in refusal(tmp_path / "corpsu.txt")
    assert "does not exist either" in refusal(tmp_path / "nowhere" / "a.txt")
    (tmp_path / "empty").mkdir()
    assert ".jsonl, .ndjson" in refusal(tmp_path / "empty")
    assert "one of strict, replace, skip" in refusal(tmp_path / "corpus.txt", errors="ignore")
    with pytest.raises(InputError, match="at least one file"):
        list_files([])


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.zst"])
def test_truncated_and_false_archives_are_refused(tmp_path, name):
    file = write(tmp_path / name, "A sentence that is not random.\n" * 5000 + "".join(map(chr, range(200, 9000))))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert "ends too early" in refusal(file)
    file.write_bytes(b"plain text, not packed at all")
    assert "it is not compressed" in refusal(file)
    assert "name it a.txt" in refusal(file)
    file.write_bytes(b"\0\1 damaged from its first byte on")
    assert "compress it again" in refusal(file)
    file.write_bytes(whole + b"and more")
    assert "data behind its end" in refusal(file)


def test_unreadable_text_is_replaced_or_skipped_and_counted(tmp_path):
    file = write(tmp_path / "a.txt", b"One \xff\xfe.\nTwo.\n\nThree\xc3\n")
    counts = Counts()
    assert texts(file, errors="replace", counts=counts) == ["One \ufffd\ufffd.\nTwo.", "Three\ufffd"]
    assert (counts.replaced, counts.skipped) == (3, 0)
    counts = Counts()
    assert texts(file, errors="skip", counts=counts) == ["Two."]
    assert (counts.replaced, counts.skipped) == (0, 2)
    rows = write(tmp_path / "a.jsonl", b'{"text": "a\xff"}\nnot json\n{"text": "\\udfff!"}\n{"text": "ok"}\n')
    counts = Counts()
    assert texts(rows, errors="skip", counts=counts) == ["ok"]
    assert counts.skipped == 3


def test_nul_is_removed_and_counted(tmp_path):
    file = write(tmp_path / "a.txt", b"a\0b\n\n\0\n\nc")
    rows = write(tmp_path / "a.jsonl", '{"text": "d\\u0000e"}\n')
    counts = Counts()
    assert texts(file, rows, counts=counts) == ["ab", "c", "de"]
    assert counts.nul == 3


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_rows_come_back_as_they_were(tmp_path_factory, originals):
    file = tmp_path_factory.mktemp("rows") / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in originals), encoding="utf-8")
    kept = [text.replace("\r\n", "\n").rstrip("\n") for text in originals if text.strip()]
    if kept:
        assert texts(file) == kept


@given(
    st.text(st.sampled_from("ab 中文。.\n\r é😀"), min_size=1, max_size=300),
    st.integers(1, 40),
    st.integers(4, 50),
)
@example("    \n\na", 1, 4)
@settings(max_examples=300, deadline=None)
def test_long_lines_and_documents_lose_nothing(tmp_path_factory, text, part, line):
    file = tmp_path_factory.mktemp("lines") / "a.txt"
    file.write_text(text, encoding="utf-8", newline="")
    if not text.strip():
        return
    whole = texts(file)
    with pytest.MonkeyPatch.context() as patch:  # the limits alone are made small
        patch.setattr(parts, "PART_CHARACTERS", part)
        patch.setattr(lines, "LINE_BYTES", line)
        pieces = list(Reader([file]).documents())
    rejoined: list[str] = []
    for piece in pieces:
        if piece.part == 0:
            rejoined.append("")
        rejoined[-1] += piece.text
    assert ["".join(text.split()) for text in rejoined] == ["".join(text.split()) for text in whole]


def test_white_space_at_the_end_of_a_long_line_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LINE_BYTES", 8)
    assert texts(write(tmp_path / "a.txt", "12345678  \nb\n\nc")) == ["12345678  \nb", "c"]


def test_long_documents_are_cut_at_borders_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART_CHARACTERS", 100)
    text = "A short sentence stands here. " * 20
    rows = write(tmp_path / "a.jsonl", json.dumps({"text": text}))
    lines = write(tmp_path / "a.txt", text.replace(". ", ".\n"))
    for file in (rows, lines):
        counts = Counts()
        pieces = list(Reader([file]).documents(counts))
        assert len(pieces) > 4
        assert [part.part for part in pieces] == list(range(len(pieces)))
        assert all(part.text.rstrip().endswith(".") for part in pieces)
        assert (counts.documents, counts.long_documents) == (1, 1)


def test_a_line_of_100_mb_streams(tmp_path):
    file = tmp_path / "a.txt"
    with file.open("wb") as out:
        for _ in range(100):
            out.write(b"word " * 200_000)
    script = textwrap.dedent(f"""
        import resource
        from clozeworks.data.text.reader import Reader
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        total = sum(part.text.count("word") for part in Reader([{str(file)!r}]).documents())
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(total, grown)
    """)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    words, grown = map(int, result.stdout.split())
    assert words == 20_000_000
    assert grown < 60_000 * (1 if sys.platform != "darwin" else 1024)  # kB; the file is 100 MB


def test_memory_does_not_grow_with_the_file(tmp_path):
    file = write(tmp_path / "a.txt.gz", "A line of text that stands alone.\n\n" * 60_000)
    tracemalloc.start()
    try:
        count = sum(1 for _ in Reader([file]).documents())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 60_000
    assert peak < 1_500_000


def test_progress_reaches_the_size_of_the_files(tmp_path):
    files = [write(tmp_path / "a.txt.gz", "x\n\n" * 1000), write(tmp_path / "b.jsonl", '{"text": "y"}\n' * 1000)]
    counts = Counts()
    seen = [counts.bytes for _ in Reader(files).documents(counts)]
    assert seen == sorted(seen)
    assert counts.bytes == sum(file.stat().st_size for file in files)


def test_sources_name_their_file(tmp_path):
    file = write(tmp_path / "a.txt", "x\n\ny")
    assert {document.source for document in Reader([file]).documents()} == {str(file)}
