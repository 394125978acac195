"""Each finding has a text that leads to it and one that does not."""

import gzip
import io
import json
import random
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.checks.check import check
from clozeworks.data.checks.finding import Aim
from clozeworks.data.records.counts import Counts
from clozeworks.data.records.mixture import LOSES
from clozeworks.data.text.documents import Document
from clozeworks.data.text.reader import Reader, Reading
from tests.conftest import SHARED
from tests.data.checks.samples import WORDS, chinese, look, prose, reports


def test_good_prose_is_fine(tmp_path):
    report = look(tmp_path, prose())
    assert {finding.kind for finding in report.findings} == {"fine"}
    assert report.options() == {}
    facts = report.facts
    assert (facts["files"], facts["documents"], facts["language"]) == (1, 30, "en")
    assert facts["characters"] == sum(map(len, prose()))
    assert facts["sentences"] == sum(text.count(".") for text in prose())


def test_good_chinese_is_fine(tmp_path):
    report = look(tmp_path, chinese())
    assert {finding.kind for finding in report.findings} == {"fine"}
    assert report.facts["language"] == "zh"


def test_links_that_lead_nowhere(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "good.txt").write_text("\n\n".join(prose()))
    (tmp_path / "d" / "bad.txt").symlink_to(tmp_path / "nowhere.txt")
    assert reports(check(tmp_path / "d", Reading()), "1 link leads nowhere")


def test_standard_input_is_looked_at_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"body": "One."}\n')))
    assert reports(check("-", Reading()), "standard input, line 1: no field", "wrong")


def test_documents_and_rows_in_memory():
    report = check([{"text": text} for text in prose()], Reading(), aim=Aim(vocab=256))
    assert report.facts["documents"] == 30
    assert not report.wrong
    assert reports(check(iter([{"text": "One."}, {"body": "Two."}]), Reading()), "1 row cannot be read", "wrong")
    assert check((Document(text) for text in prose()), Reading()).facts["documents"] == 30


def test_memory_is_bounded(tmp_path):
    """Memory does not grow with the text."""
    draw, file = random.Random(0), tmp_path / "a.jsonl"
    with file.open("w") as stream:
        for _ in range(25_000):
            stream.write(json.dumps({"text": " ".join(draw.choices(WORDS, k=40))}) + "\n")
    look(tmp_path, prose())  # what is made once
    tracemalloc.start()
    check(file, Reading())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000


@given(st.binary(max_size=400), st.sampled_from(["a.txt", "a.jsonl", "a.csv", "a.tsv", "a.txt.gz", "a.parquet"]))
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes_never_crash_it(content, name):
    with tempfile.TemporaryDirectory() as place:
        report = look(Path(place), content, name)
        assert report.findings
        assert list(Path(place).iterdir()) == [Path(place, name)]


@given(st.lists(st.text(max_size=60), max_size=6), st.sampled_from(["utf-8", "utf-16", "gb18030"]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_arbitrary_text_never_crashes_it(texts, encoding, strict):
    with tempfile.TemporaryDirectory() as place:
        raw = "\n\n".join(texts).encode(encoding, "ignore")
        assert look(Path(place), raw, encoding="auto", errors="strict" if strict else "skip").findings


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data")
@pytest.mark.parametrize("name", ["en_wiki", "zh_wiki", "zh_law"])
def test_good_corpora_are_fine(name):
    assert not check(SHARED / name / "train.jsonl", Reading()).wrong


@pytest.mark.parametrize("parts", [("gb18030", "gb18030"), ("utf-16-le", "utf-16-le"), ("utf-8", "gb18030")])
def test_prepare_and_its_check_recommend_the_same(tmp_path, parts):
    """What `prepare` says where it stops is what `--check` says, and one who follows it hears nothing else."""
    texts = ("\n\n".join(chinese(8, seed)) + "\n\n" for seed in (1, 2))
    raw = b"".join(text.encode(encoding) for text, encoding in zip(texts, parts, strict=True))
    chosen = look(tmp_path, raw).options()
    with pytest.raises(InputError) as stopped:
        list(Reader(tmp_path / "a.txt", Reading(), None).documents(Counts()))
    advice = stopped.value.todo.removesuffix(LOSES)
    recommended = {name for name in ("--encoding", "--errors") if name in advice}
    assert recommended == {"--encoding", "--errors"} & chosen.keys()
    assert all(f"{name} {chosen[name]}" in advice for name in recommended)
    followed = {name.removeprefix("--"): chosen[name] for name in recommended}
    assert not [finding for finding in look(tmp_path, raw, **followed).findings if recommended & finding.options.keys()]


def test_other_files_and_false_names(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(prose()))
    assert not reports(check(tmp_path, Reading()), "other file")
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.7")
    assert reports(check(tmp_path, Reading()), "1 other file is of a kind that is not read", "note")
    (tmp_path / "c.txt").write_bytes(gzip.compress(b"Text."))
    report = check(tmp_path, Reading())
    assert reports(report, "c.txt: it is gzip", "wrong")
    assert not reports(report, "cannot be decoded", "wrong")
