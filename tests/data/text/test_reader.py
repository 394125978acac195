import bz2
import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts
from clozeworks.data.text import files, lines, parts
from clozeworks.data.text.documents import Document
from clozeworks.data.text.reader import Reader, Reading

PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "gb18030"]


def read(source, spool=None, counts=None, **options) -> list[Document]:
    return list(Reader(source, Reading(**options), spool).documents(Counts() if counts is None else counts))


def texts(source, **options) -> list[str]:
    return [document.text for document in read(source, **options)]


def refusal(source, **options) -> str:
    with pytest.raises(InputError) as caught:
        read(source, **options)
    return str(caught.value)


def encode(texts: list[str], kind: str) -> str:
    if kind in (".jsonl", ".ndjson"):
        return "".join(json.dumps({"id": 1, "text": text}, ensure_ascii=False) + "\n" for text in texts)
    if kind in (".csv", ".tsv"):
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter="\t" if kind == ".tsv" else ",", quoting=csv.QUOTE_ALL)
        writer.writerows([["id", "text"], *([index, text] for index, text in enumerate(texts))])
        return out.getvalue()
    return "\n\n".join(texts)


def write_arrow(file: Path, columns: dict) -> Path:
    table = pyarrow.table(columns)
    if file.suffix == ".parquet":
        pyarrow.parquet.write_table(table, file)
    elif file.suffix == ".feather":
        pyarrow.feather.write_feather(table, file)
    else:
        with pyarrow.OSFile(str(file), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    return file


characters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff")
words = st.one_of(st.text(characters, min_size=1, max_size=40), st.text(st.sampled_from("ab 中文。,\"'\n"), min_size=1))
bodies = st.lists(words.filter(str.strip), min_size=1, max_size=5)


@given(bodies, st.sampled_from([".jsonl", ".ndjson", ".csv", ".tsv"]), st.sampled_from(list(PACKERS)), st.data())
@settings(max_examples=200, deadline=None)
def test_rows_come_back_from_every_format_encoding_and_compression(tmp_path_factory, originals, kind, packed, data):
    encoding = data.draw(st.sampled_from(ENCODINGS))
    file = tmp_path_factory.mktemp("rows") / f"a{kind}{packed}"
    file.write_bytes(PACKERS[packed](encode(originals, kind).encode(encoding)))
    counts = Counts()
    assert texts(file, encoding=encoding, counts=counts) == [text.rstrip("\n") for text in originals]
    assert counts.encodings == {"utf-8" if encoding.startswith("utf-8") else encoding: 1}


@given(bodies, st.sampled_from([".txt", ".text", ".md"]), st.sampled_from(list(PACKERS)), st.data())
@settings(max_examples=200, deadline=None)
def test_lines_come_back_from_every_encoding_and_compression(tmp_path_factory, originals, kind, packed, data):
    encoding = data.draw(st.sampled_from(ENCODINGS))
    bodies = ["\n".join(line for line in text.split("\n") if line.strip()) for text in originals]
    file = tmp_path_factory.mktemp("lines") / f"a{kind}{packed}"
    file.write_bytes(PACKERS[packed]("\n\n".join(bodies).encode(encoding)))
    with pytest.MonkeyPatch.context() as patch:  # characters and newlines fall across the borders of pieces
        patch.setattr(lines, "LINE_BYTES", data.draw(st.integers(8, 40)))
        patch.setattr("clozeworks.data.records.encodings.CHUNK", data.draw(st.integers(1, 9)))
        assert texts(file, encoding=encoding) == bodies


@given(bodies, st.sampled_from([".parquet", ".arrow", ".feather"]))
@settings(max_examples=60, deadline=None)
def test_arrow_tables_come_back(tmp_path_factory, originals, kind):
    file = write_arrow(tmp_path_factory.mktemp("arrow") / f"a{kind}", {"id": [[1]] * len(originals), "text": originals})
    assert texts(file) == [text.rstrip("\n") for text in originals]


@pytest.mark.parametrize("kind", [".parquet", ".arrow", ".feather"])
def test_arrow_rows_bring_spans_words_and_blanks(tmp_path, kind):
    file = write_arrow(tmp_path / f"a{kind}", {"text": ["New York", None, " "], "entities": [[[0, 8]], [], None]})
    counts = Counts()
    assert [(d.text, d.entities) for d in read(file, counts=counts)] == [("New York", [(0, 8)])]
    assert (counts.empty_rows, counts.bytes) == (2, file.stat().st_size)
    file = write_arrow(tmp_path / f"b{kind}", {"words": [["他", "来", "了"]]})
    assert read(file)[0].words == [["他", "来", "了"]]
    message = refusal(write_arrow(tmp_path / f"c{kind}", {"txt": ["x"], "id": [1]}))
    assert all(part in message for part in (f"c{kind}", "no column 'text'", "txt, id", "did you mean txt?"))
    broken = tmp_path / f"d{kind}"
    broken.write_bytes(file.read_bytes()[:-20] if kind != ".arrow" else b"not arrow at all, no")
    assert "a whole file is needed" in refusal(broken)
    broken.write_bytes(b"")
    assert "an empty file" in refusal(broken)


def test_arrow_files_name_the_missing_package(tmp_path, monkeypatch):
    file = write_arrow(tmp_path / "a.parquet", {"text": ["x"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install clozeworks[arrow]" in refusal(file)


@pytest.mark.parametrize(
    ("name", "content", "needles"),
    [
        ("a.csv", "body,id\nx,1\n", ["a.csv, line 1", "no column 'text'", "body, id", "--field NAME"]),
        ("a.csv", 'text,id\n"x\ny",1\nz\n', ["a.csv, line 4", "1 cell under 2 names", "--errors skip"]),
        ("a.tsv", 'text\tid\n"x" y\t1\n', ["a.tsv, line 2", "quotes inside quotes doubled"]),
        ("a.csv", 'text\n"never closed\n', ["a.csv, line 2", "unexpected end"]),
        ("a.csv", "text\n", ["a.csv", "no document"]),
    ],
)
def test_bad_tables_are_refused_with_their_place(tmp_path, name, content, needles):
    (tmp_path / name).write_text(content)
    message = refusal(tmp_path / name)
    assert all(needle in message for needle in needles), message


def test_bad_rows_of_tables_are_left_out_and_counted(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes(b'text,id\none,1\nshort\n"b\xffd\ntail",2\n\ntwo,3\n,4\n')
    counts = Counts()
    assert texts(file, errors="skip", counts=counts) == ["one", "two"]
    assert (counts.skipped, counts.empty_rows) == (2, 1)
    counts = Counts()
    file.write_bytes(b"text,id\na\xffb,1\n")
    assert texts(file, errors="replace", counts=counts) == ["a\ufffdb"]
    assert counts.replaced == 1


def test_skip_forgives_rows_but_not_a_misspelt_field(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "one"}\n{"body": "two"}\n["three"]\n{"text": 4}\n{"text": null}\n')
    counts = Counts()
    assert texts(file, errors="skip", counts=counts) == ["one"]
    assert (counts.skipped, counts.empty_rows) == (3, 1)
    assert "no field 'txt'" in refusal(file, errors="skip", field="txt")


def test_rows_have_a_limit(tmp_path, monkeypatch):
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"text": "x" * 5000}))
    monkeypatch.setattr(files, "ROW_BYTES", 1000)
    assert "a row holds one document" in refusal(file)


def test_pairs_stay_whole(tmp_path):
    rows = [{"en": " One. Two. ", "de": "Eins.\r\n Zwei."}, {"en": " ", "de": "x"}, {"en": "y", "de": None}]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for source in (file, rows):
        counts = Counts()
        result = read(source, pairs=("en", "de"), counts=counts)
        assert [document.sentences for document in result] == [["One. Two.", "Eins. Zwei."]]
        assert (counts.documents, counts.empty_rows) == (1, 2)
    (tmp_path / "a.csv").write_text("en,de,text\none,eins,x\n")
    assert read(tmp_path / "a.csv", pairs=("de", "en"))[0].sentences == ["eins", "one"]
    assert "no field 'fr'" in refusal(file, pairs=("en", "fr"))
    (tmp_path / "a.txt").write_text("x")
    assert "rows with two fields" in refusal(tmp_path / "a.txt", pairs=("en", "de"))
    assert "never divided" in refusal([{"en": "a" * 100_001, "de": "b"}], pairs=("en", "de"))
    assert "two different fields" in refusal(file, pairs=("en", "en"))


def test_wrapped_lines_are_joined_where_that_is_asked(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("It was the best of \n  times, it was\r\nthe worst.\n\n我们今天\n去，\n北京ab\ncd\n", newline="")
    assert texts(file, unwrap=True) == ["It was the best of times, it was the worst.", "我们今天去，北京ab cd"]
    assert texts(file)[1] == "我们今天\n去，\n北京ab\ncd"


def test_wrapped_lines_of_long_documents_break_at_sentences(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART_CHARACTERS", 200)
    file = tmp_path / "a.txt"
    file.write_text("A sentence runs\nover the line. " * 40)
    result = texts(file, unwrap=True)
    assert len(result) > 3
    assert all(text.strip().endswith("line.") and "\n" not in text for text in result)


def pipe(content: bytes, spool: Path, monkeypatch) -> Reader:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    return Reader("-", Reading(encoding="auto"), spool)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"One.\n\nTwo.", ["One.", "Two."]),
        (b' \n{"text": "One."}\n{"text": "Two."}', ["One.", "Two."]),
        ('{"text": "天气很好"}'.encode("utf-16"), ["天气很好"]),
    ],
)
def test_standard_input_is_kept_and_its_format_guessed(tmp_path, monkeypatch, content, expected, pack):
    spool = tmp_path / "spool"
    reader = pipe(pack(content), spool, monkeypatch)
    for _ in range(2):
        assert [document.text for document in reader.documents(Counts())] == expected
    assert reader.identity() is None
    assert reader.sources()[0]["path"] == "-"


def test_empty_standard_input_is_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="standard input: nothing"):
        pipe(b"", tmp_path / "spool", monkeypatch)
    assert not (tmp_path / "spool").exists()


def test_standard_input_keeps_its_place_among_files(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"between")))
    reader = Reader([tmp_path / "a.txt", "-", tmp_path / "b.txt"], Reading(), tmp_path / "spool")
    assert [document.text for document in reader.documents(Counts())] == ["a", "between", "b"]
    (tmp_path / "spool").unlink()
    with pytest.raises(InputError, match="no such file"):  # before the input is read
        Reader(["-", tmp_path / "c.txt"], Reading(), tmp_path / "spool")
    assert not (tmp_path / "spool").exists()


def test_identity_and_sources_of_files(tmp_path):
    one, two = tmp_path / "a.txt", tmp_path / "b.txt"
    one.write_text("plain")
    two.write_bytes("今天的天气很好，我们去北京。".encode("gb18030"))
    reader = Reader(tmp_path, Reading(encoding="auto"), None)
    status = one.stat()
    assert reader.identity()[0] == {"path": str(one), "bytes": 5, "mtime_ns": status.st_mtime_ns}
    assert reader.sources() == [
        {"path": str(one), "bytes": 5},
        {"path": str(two), "bytes": two.stat().st_size, "encoding": "gb18030"},
    ]
    assert reader.total == 5 + two.stat().st_size
    counts = Counts()
    assert len(list(reader.documents(counts))) == 2
    assert counts.encodings == {"utf-8": 1, "gb18030": 1}
    os.utime(one, ns=(1, 1))
    assert Reader(tmp_path, Reading(encoding="auto"), None).identity()[0]["mtime_ns"] == 1


@pytest.mark.parametrize(
    ("options", "needles"),
    [
        ({"encoding": "utf-9"}, ["encoding", "utf-9", "did you mean"]),
        ({"encoding": "base64"}, ["encoding", "base64"]),
        ({"encoding": "rot13"}, ["encoding", "rot13"]),
        ({"errors": "ignore"}, ["errors", "strict, replace, skip"]),
        ({"unicode": "nfd"}, ["unicode", "none, nfc, nfkc"]),
        ({"field": ""}, ["field"]),
    ],
)
def test_unknown_settings_are_refused(options, needles):
    with pytest.raises(InputError) as caught:
        Reading(**options)
    assert all(needle in str(caught.value) for needle in needles)


SCRIPT = """
import resource, sys
from clozeworks.data.records.counts import Counts
from clozeworks.data.text.reader import Reader, Reading
if sys.argv[2] == "arrow":
    import pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
characters = sum(len(d.text) for d in Reader(sys.argv[1], Reading(encoding=sys.argv[3]), None).documents(Counts()))
print(characters, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        (".txt", "utf-8"),
        (".txt", "utf-16"),
        (".txt", "gb18030"),
        (".jsonl", "utf-8"),
        (".csv", "utf-8"),
        (".parquet", ""),
    ],
)
def test_memory_stays_the_same_for_50_mb(tmp_path, kind, encoding):
    count, text = 5000, "A sentence of the corpus. " * 400
    file = tmp_path / f"a{kind}"
    if kind == ".parquet":
        schema = pyarrow.schema([("text", pyarrow.string())])
        with pyarrow.parquet.ParquetWriter(file, schema, compression="none", use_dictionary=False) as writer:
            writer.write_table(pyarrow.table({"text": [f"{n} {text}" for n in range(count)]}, schema))
    else:
        with file.open("w", encoding=encoding, newline="") as out:
            for begin in range(0, count, 500):
                out.write(encode([f"{n} {text}" for n in range(begin, begin + 500)], kind) + "\n\n" * (kind == ".txt"))
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(SCRIPT),
        str(file),
        "arrow" if not encoding else "",
        encoding or "utf-8",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    read_characters, grown = map(int, result.stdout.split())
    assert file.stat().st_size > 50_000_000
    assert read_characters > 50_000_000
    assert grown < 30_000 * (1 if sys.platform != "darwin" else 1024)  # kB


@pytest.mark.parametrize("mark", [",", ";", "|", "\t"])
@pytest.mark.parametrize("kind", [".csv", ".tsv"])
def test_what_separates_cells_is_told_from_the_header(tmp_path, kind, mark):
    file = tmp_path / f"a{kind}"
    file.write_text(
        f"\nid{mark}text\n1{mark}One; two, three.\n2{mark}Four\n".replace("; two,", "" if mark in ";," else "; two,")
    )
    assert texts(file) == ["One three." if mark in ";," else "One; two, three.", "Four"]
    assert "the columns are id, text" in refusal(file, field="body")
    file.write_text(f"id{mark}text\n1\n")
    assert "line 2" in refusal(file)


def test_a_column_of_text_keeps_every_mark(tmp_path):
    (tmp_path / "a.csv").write_text("text\nOne; two | three.\n")
    assert texts(tmp_path / "a.csv") == ["One; two | three."]
    (tmp_path / "a.csv").write_text("text;x|text\n1\n")  # two marks could be meant
    assert "no column 'text'" in refusal(tmp_path / "a.csv")


def test_a_column_that_stands_twice(tmp_path):
    (tmp_path / "a.csv").write_text("text,text\nx,y\n")
    assert "two columns are called 'text'" in refusal(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("id,id,text\n1,2,x\n")
    assert texts(tmp_path / "a.csv") == ["x"]
    table = pyarrow.Table.from_arrays([pyarrow.array(["x"]), pyarrow.array(["y"])], names=["text", "text"])
    pyarrow.feather.write_feather(
        table.rename_columns(["text", "text"]), tmp_path / "a.arrow", compression="uncompressed"
    )
    assert "two columns are called 'text'" in refusal(tmp_path / "a.arrow")


PAIRS = [["a cat", "eine Katze"], ['he said "hi', "er sagte hallo"], ["a dog", "ein Hund"]]


def sides_of(path: Path, *pairs: str) -> list[list[str]]:
    reader = Reader(path, Reading(pairs=(pairs[0], pairs[1])), None)
    return [document.sentences or [] for document in reader.documents(Counts())]


def test_a_table_without_a_header_has_its_columns_by_number(tmp_path: Path):
    rows = [f"{n}\t{a}\t{b}\n" for n, (a, b) in enumerate(PAIRS)]
    (tmp_path / "a.tsv").write_text("".join(rows))
    assert sides_of(tmp_path / "a.tsv", "2", "3") == PAIRS
    assert sides_of(tmp_path / "a.tsv", "3", "2") == [[b, a] for a, b in PAIRS]
    (tmp_path / "b.csv").write_text('"a, b",x\nc,y\n')
    assert sides_of(tmp_path / "b.csv", "1", "2") == [["a, b", "x"], ["c", "y"]]


def test_a_header_that_is_made_of_numbers_is_one(tmp_path: Path):
    (tmp_path / "a.tsv").write_text("2\t1\nx\ty\n")
    assert sides_of(tmp_path / "a.tsv", "1", "2") == [["y", "x"]]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (("en", "de"), "no column 'en'; .*a table without a header has columns by number: --pairs 1,2"),
        (("1", "3"), "no column '3'; the columns are 1, 2"),
    ],
)
def test_columns_that_are_not_there_are_refused(tmp_path: Path, pairs: tuple[str, str], message: str):
    (tmp_path / "a.tsv").write_text("a cat\teine Katze\na dog\tein Hund\n")
    with pytest.raises(InputError, match=message):
        sides_of(tmp_path / "a.tsv", *pairs)


@pytest.mark.parametrize("cut", [40, -1], ids=["shrinks", "grows"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, cut: int):
    file = tmp_path / "corpus.txt"
    text = "one line of a document\n\n" * 4000
    file.write_text(text)
    documents = Reader([file], Reading()).documents(Counts())
    next(documents)
    file.write_text(text[:cut] if cut > 0 else text + text)
    with pytest.raises(InputError, match="it changed while it was read"):
        list(documents)


def test_reading_may_end_early(tmp_path: Path):
    file = tmp_path / "corpus.txt"
    file.write_text("one\n\ntwo\n")
    documents = Reader([file], Reading()).documents(Counts())
    next(documents)
    file.write_text("three\n")
    documents.close()  # who has seen enough hears of no change
