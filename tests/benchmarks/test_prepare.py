"""The same tokens on both sides, memory of whole trees of processes; the figures are nobody's test."""

import json
import subprocess
import sys
import time

import pytest

from benchmarks import memory, prepare, preparers, raw_text
from clozeworks.core.errors import InputError
from clozeworks.data.text.reader import Reader

LINUX = pytest.mark.skipif(not (memory.PROC / "self" / "smaps_rollup").exists(), reason="needs Linux's smaps_rollup")


def test_text_of_any_size_never_repeats_a_document(tmp_path):
    file = tmp_path / "text.jsonl"
    raw_text.write(file, 0.5, embedded=20)
    texts = [document.text for document in Reader([file]).documents()]
    longest = max(map(len, texts))
    assert 500_000 <= file.stat().st_size < 500_000 + longest + 100
    assert len(set(texts)) == len(texts) > 40
    again = tmp_path / "again.jsonl"
    raw_text.write(again, 0.5, embedded=20)
    assert again.read_bytes() == file.read_bytes()


def segment(seconds: float, memory: float | None) -> dict:
    return {"seconds": seconds, "cpu_seconds": 2 * seconds, "seconds_with_imports": seconds + 1, "before_work_mb": 5.0,
            "above_bare_mb": memory, "peak_anonymous_mb": memory, "bytes_on_disk": 100, "processes": 1}  # fmt: skip


def test_ratios_are_of_pairs_and_of_the_fastest():
    rows = {
        "ours, 1": [segment(4.0, 10.0), segment(6.0, 10.0), segment(4.0, 20.0)],
        "theirs, 1": [segment(4.0, 40.0), segment(4.0, 40.0), segment(4.0, 40.0)],
        "ours, 2": [segment(1.0, 30.0), segment(1.0, 30.0), segment(3.0, 30.0)],
        "theirs, 2": [segment(8.0, 90.0), segment(8.0, 90.0), segment(8.0, 90.0)],
    }
    result = prepare.summary(rows, 2)
    assert result["ratio"]["1"]["seconds"] == {"median": 1.0, "lowest": 1.0, "highest": 1.5}
    assert result["ratio"]["1"]["above_bare_mb"] == {"median": 0.25, "lowest": 0.25, "highest": 0.5}
    assert result["fastest"] == {"ours": "ours, 2", "theirs": "theirs, 1"}
    assert result["ratio"]["fastest"]["seconds"] == {"median": 0.25, "lowest": 0.25, "highest": 0.75}
    assert result["sides"]["ours, 2"]["seconds"] == 1.0


def test_memory_that_nobody_can_tell_has_no_ratio():
    rows = {"ours, 1": [segment(1.0, None)], "theirs, 1": [segment(1.0, None)]}
    result = prepare.summary(rows, 1)
    assert result["sides"]["ours, 1"]["above_bare_mb"] is None
    assert set(result["ratio"]["1"]) == {"seconds", "cpu_seconds", "seconds_with_imports"}


@LINUX
def test_the_watcher_sees_what_children_hold():
    child = "x = bytearray(60_000_000); x[::4096] = b'x' * len(x[::4096]); import time; time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    before = memory.bare_interpreter()
    assert 1 < before < 60
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        watcher = memory.Watcher(process.pid)
        watcher.start()
        late = time.monotonic() + 30
        while watcher.peak < 60 and time.monotonic() < late:
            time.sleep(0.05)
        result = watcher.stop()
        for each in reversed(memory.descendants(process.pid)):
            subprocess.run(["kill", str(each)], check=False)
    assert 57 < result["peak_anonymous_mb"] <= result["peak_mb"] < 57 + 4 * before + 40
    assert result["processes"] == 2


def test_a_process_that_is_gone_holds_nothing():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert memory.held(process.pid) == memory.Held(0.0, 0.0)
    assert memory.descendants(process.pid) == [process.pid]


@pytest.mark.parametrize(("name", "message"), [("nowhere.jsonl", "a file is needed"), ("text.csv", ".jsonl file")])
def test_text_that_both_cannot_read_is_refused(tmp_path, name, message):
    (tmp_path / "text.csv").write_text("text\nhello\n")
    with pytest.raises(InputError, match=message):
        prepare.check_text(str(tmp_path / name))


def test_a_missing_peer_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="pip install datasets"):
        prepare.need_peer()


def test_our_side_imports_nothing_of_the_peer():
    code = "import sys; from benchmarks import preparers; import clozeworks.data.shards.prepare; " \
           "assert not {'torch', 'datasets', 'transformers'} & set(sys.modules)"  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True)
    assert preparers.cpu_seconds() > 0


def test_a_side_that_dies_says_why(tmp_path):
    with pytest.raises(RuntimeError, match=r"ours died with 1:\n(.|\n)*tokenizer"):
        prepare.measure("ours", 1, tmp_path, tmp_path / "text.jsonl", threads=1, bare=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".jsonl", ".txt"])
def test_both_sides_make_the_same_tokens(tmp_path, ending):
    pytest.importorskip("datasets")
    pytest.importorskip("transformers")
    text = tmp_path / "text.jsonl"
    raw_text.write(text, 0.3, embedded=30)
    if ending == ".txt":
        lines = [document.text for document in Reader([text]).documents()]
        text = tmp_path / "text.txt"
        text.write_text("\n\n".join(lines) + "\n")
    small = prepare.Setting(vocab=1000, repetitions=1, processes=2, data=str(text))
    results = json.loads(json.dumps(prepare.run(small), allow_nan=False))
    tokens = results["workload"]["tokens"]
    assert set(tokens) == {"ours, 1", "theirs, 1", "ours, 2", "theirs, 2"}
    assert len(set(tokens.values())) == 1
    assert min(tokens.values()) > 10_000
    assert results["segments"]["ours, 2"][0]["processes"] > results["segments"]["ours, 1"][0]["processes"]
    assert prepare.render(results)
