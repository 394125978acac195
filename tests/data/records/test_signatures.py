"""Files whose name says something else than their bytes."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.records.compressed import packing_of
from clozeworks.data.records.counts import Counts
from clozeworks.data.text.reader import Reader, Reading

PACKERS = {".gz": gzip.compress, ".zst": zstandard.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
TABLE = pyarrow.table({"text": ["A row."]})


def made(write) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def zipped(out: io.BytesIO) -> None:
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.txt", "Text.")


def tarred(out: io.BytesIO) -> None:
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))


def streamed(out: io.BytesIO) -> None:
    with pyarrow.ipc.new_stream(out, TABLE.schema) as writer:
        writer.write_table(TABLE)


OTHERS = {
    "Parquet": made(lambda out: pyarrow.parquet.write_table(TABLE, out)),
    "Arrow": made(lambda out: pyarrow.feather.write_feather(TABLE, out, compression="uncompressed")),
    "Arrow;": made(streamed),
    "a PDF": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "a zip archive": made(zipped),
    "a tar archive": made(tarred),
}


def refusal(path) -> str:
    with pytest.raises(InputError) as caught:
        list(Reader(path, Reading(), path.parent / "spool" if hasattr(path, "parent") else None).documents(Counts()))
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
@pytest.mark.parametrize("packed", PACKERS)
def test_a_compression_that_the_name_does_not_tell(tmp_path, name, packed):
    (tmp_path / name).write_bytes(PACKERS[packed](b"Text."))
    assert f"name it {name}{packed}" in refusal(tmp_path / name)
    other = ".gz" if packed != ".gz" else ".xz"
    (tmp_path / (name + other)).write_bytes(PACKERS[packed](b"Text."))
    assert f"name it {name}{packed}" in refusal(tmp_path / (name + other))


@pytest.mark.parametrize("packed", ["", *PACKERS])
@pytest.mark.parametrize("what", OTHERS)
def test_what_is_no_text(tmp_path, what, packed):
    file = tmp_path / f"a.txt{packed}"
    file.write_bytes(PACKERS.get(packed, bytes)(OTHERS[what]))
    assert f"it is {what}" in refusal(file)


@pytest.mark.parametrize("packed", PACKERS)
def test_plain_text_under_the_name_of_a_compression(tmp_path, packed):
    file = tmp_path / f"a.txt{packed}"
    file.write_bytes("Plain text, 也有中文。".encode())
    assert "it is not compressed" in refusal(file)
    assert "name it a.txt" in refusal(file)


@pytest.mark.parametrize("what", OTHERS)
def test_standard_input(tmp_path, monkeypatch, what):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(OTHERS[what])))
    with pytest.raises(InputError, match=f"standard input: it is {what.rstrip(';')}; text or JSON lines are needed"):
        list(Reader(["-"], Reading(), tmp_path / "spool").documents(Counts()))


@given(st.text(st.sampled_from("BZhPARK17zustr%DF- \n中"), min_size=1, max_size=12))
def test_text_is_never_taken_for_something_else(text):
    assert packing_of(text.encode()) == ""


@pytest.mark.parametrize("text", ["BZhang writes.", "PAR1 is a gene.", "%PDF is a mark.", "PK is short.", "ARROW1 x"])
def test_text_that_begins_like_something_else(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert [document.text for document in Reader(tmp_path, Reading(), None).documents(Counts())] == [text]
