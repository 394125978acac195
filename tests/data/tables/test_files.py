"""Files by their ending, compression and encoding."""

import gzip
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.tables import read_table

CHINESE = "text,label\n" + "这家酒店的服务很好，我们住了三天，房间也很大。,1\n太差了，再也不会来了。,0\n" * 5


def refusal(given, columns=("text",), truth=("label",), **more) -> str:
    with pytest.raises(InputError) as caught:
        read_table(given, columns, truth, **more)
    return str(caught.value)


def test_compressed_files(tmp_path: Path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"text,label\na,1\n"))
    assert read_table(tmp_path / "a.csv.gz", ("text",), ("label",)).table.rows == [{"text": "a", "label": "1"}]
    (tmp_path / "a.csv").write_bytes((tmp_path / "a.csv.gz").read_bytes())
    assert "it is gzip" in refusal(tmp_path / "a.csv")
    (tmp_path / "b.csv.gz").write_bytes((tmp_path / "a.csv.gz").read_bytes()[:-9])
    assert "ends too early" in refusal(tmp_path / "b.csv.gz")


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16"])
def test_another_encoding_is_reported_with_the_command_that_mends_it(tmp_path: Path, encoding: str):
    file = tmp_path / "a.csv"
    file.write_bytes(CHINESE.encode(encoding))
    message = refusal(file)
    assert (
        f"it looks like {encoding.upper()}: iconv -f {encoding.upper()} -t UTF-8 {file} > {tmp_path}/a-utf8.csv"
        in message
    )
    command, mended = message.split(": ")[-1].split(" > ")
    Path(mended).write_bytes(subprocess.run(shlex.split(command), capture_output=True, check=True).stdout)
    assert len(read_table(mended, ("text",), ("label",)).table) == 10


def test_the_mark_at_the_beginning_is_no_part_of_the_header(tmp_path: Path):
    (tmp_path / "a.csv").write_bytes(CHINESE.encode("utf-8-sig"))
    assert read_table(tmp_path / "a.csv", ("text",), ("label",)).columns == {"text": "text", "label": "label"}


def test_paths_that_lead_nowhere(tmp_path: Path):
    (tmp_path / "train.csv").write_text("text,label\na,1\n")
    assert refusal(tmp_path / "trains.csv").endswith(f"did you mean {tmp_path / 'train.csv'}?")
    assert "a directory; a file of rows is needed; name a file in it" in refusal(tmp_path)
    assert "an empty path" in refusal("")
    assert "no such file" in refusal("nowhere/at/all.csv")
    assert "too long" in refusal("x" * 5000)
    (tmp_path / "a.csv").write_bytes(b"PAR1\x15")
    assert "it is Parquet" in refusal(tmp_path / "a.csv")
    (tmp_path / "a.xyz").write_text("")
    assert "unknown ending '.xyz'" in refusal(tmp_path / "a.xyz")
    assert read_table(tmp_path / "train.csv", ("text",), kind=".txt").table.rows[1] == {"text": "a,1"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path):
    (tmp_path / "a.csv").write_text("text\n")
    (tmp_path / "a.csv").chmod(0)
    assert "Permission denied" in refusal(tmp_path / "a.csv")


def test_a_line_that_is_not_json(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": 1}\n{"text": \n')
    assert "a.jsonl, line 2: not JSON" in refusal(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text('[\n{"text": "a", "label": 1}\n]\n')
    assert refusal(tmp_path / "a.jsonl").endswith("name it .json")


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl"])
def test_brackets_in_brackets_are_refused(tmp_path: Path, name: str):
    """A hundred levels and more, which the parser itself may take."""
    (tmp_path / name).write_text('[{"text": ' + "[" * 500 + "]" * 500 + "}]")
    with pytest.raises(InputError, match="more than 100 levels of brackets"):
        read_table(tmp_path / name, ("text",), ())
