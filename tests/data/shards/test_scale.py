"""Preparing at scale: any engine, any number of processes and kills, the same bytes and bounded memory."""

import contextlib
import hashlib
import json
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.data.shards import engines, merge, units
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.shards.work import open_work
from clozeworks.data.text.documents import Document
from clozeworks.data.text.reader import Reader
from clozeworks.data.tokens.tokenizer import Tokenizer
from tests.data.shards.test_prepare import story, texts_of

SMALL = 3000  # characters of a unit, so that a small corpus has many


@pytest.fixture
def corpus(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(units, "UNIT_CHARACTERS", SMALL)
    file = tmp_path / "text" / "stories.txt"
    file.parent.mkdir()
    file.write_text("\n\n".join(story(number % 350) for number in range(400)), encoding="utf-8")
    return file


def digest(directory: Path) -> dict[str, str]:
    """Every file of a prepared directory; the command, which differs by its --out, is left out."""
    results = {}
    for file in sorted(directory.iterdir()):
        raw = file.read_bytes()
        if file.name == "manifest.json":
            facts = json.loads(raw)
            raw = json.dumps({name: value for name, value in facts.items() if name != "command"}).encode()
        results[file.name] = hashlib.sha256(raw).hexdigest()
    return results


def test_processes_and_threads_give_the_same_bytes(corpus, tmp_path):
    alone = prepare([corpus], tmp_path / "alone", vocab=300, shard_tokens=2000, dedupe=True)
    prepare([corpus], tmp_path / "two", vocab=300, shard_tokens=2000, dedupe=True, processes=2)
    assert digest(tmp_path / "alone") == digest(tmp_path / "two")
    assert alone.manifest["dropped"]["copies"] == 50
    assert sum(counted.documents for counted in alone.splits.values()) == 350


def test_the_size_of_units_changes_nothing(corpus, tmp_path, monkeypatch):
    small = prepare([corpus], tmp_path / "small", vocab=300, shard_tokens=2000)
    monkeypatch.setattr(units, "UNIT_CHARACTERS", 10**9)
    whole = prepare([corpus], tmp_path / "whole", vocab=300, shard_tokens=2000)
    assert small.fingerprint == whole.fingerprint
    assert small.manifest["lengths"] == whole.manifest["lengths"]


def test_copies_keep_their_first_place(corpus, tmp_path):
    everything = prepare([corpus], tmp_path / "all", vocab=300, heldout=0)
    single = prepare([corpus], tmp_path / "single", vocab=300, heldout=0, dedupe=True)
    assert texts_of(single, "train") == texts_of(everything, "train")[:350]


def test_long_documents_are_copies_only_if_all_their_parts_are(tmp_path, monkeypatch):
    monkeypatch.setattr(units, "UNIT_CHARACTERS", 200)

    def of(*numbers: int) -> list[Document]:
        return [Document(story(number), part=part) for part, number in enumerate(numbers)]

    documents = [*of(1, 2, 3), *of(1, 2, 4), *of(1, 2, 3), *of(1), *of(1)]
    prepared = prepare(documents, tmp_path / "out", vocab=200, heldout=0, dedupe=True)
    assert [len(document) for document in texts_of(prepared, "train")] == [9, 9, 3]


def test_copies_are_found_in_slices(tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "SLICE", 16)
    monkeypatch.setattr(merge, "BLOCK", 7)
    documents = [Document(story(number % 90)) for number in range(200)]
    prepared = prepare(documents, tmp_path / "out", vocab=200, dedupe=True)
    assert prepared.manifest["dropped"]["copies"] == 110


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_preparation_continues_to_the_same_bytes(corpus, tmp_path, processes):
    prepare([corpus], tmp_path / "whole", vocab=300, shard_tokens=2000)
    out = tmp_path / "out"
    script = f"""
        import sys, time
        from clozeworks.data.shards import prepare, units
        if __name__ == "__main__":
            units.UNIT_CHARACTERS = {SMALL}
            write = units.write
            def slow(*given):
                write(*given)
                print("unit", flush=True)
                time.sleep(0.05)
            units.write = slow
            prepare.prepare([{str(corpus)!r}], {str(out)!r}, vocab=300, shard_tokens=2000, processes={processes})
    """
    file = tmp_path / "script.py"
    file.write_text(textwrap.dedent(script))
    seen = []
    for rounds in (3, 4):  # killed twice, further on each time
        process = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(rounds):
            assert process.stdout.readline() == "unit\n"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not out.exists()
        seen.append(len(list((tmp_path / ".out.work").glob("unit-*"))))
    assert seen[1] >= seen[0] + 4
    made = []
    real = units.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "write", lambda place, one: (made.append(place), real(place, one))[1])
        prepare([corpus], out, vocab=300, shard_tokens=2000)
    assert len(made) == len(list(units.units(Reader([corpus]).documents()))) - seen[1]
    assert digest(out) == digest(tmp_path / "whole")
    assert not (tmp_path / ".out.work").exists()


def test_other_settings_or_other_text_start_anew(corpus, tmp_path):
    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    for change in ({"vocab": 200}, {"unicode": "nfc"}, {}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(merge, "Table", broken)
            with pytest.raises(KeyboardInterrupt):
                prepare([corpus], out, vocab=300, overwrite=True)
        assert (tmp_path / ".out.work" / "unit-000000.safetensors").exists()
        if not change:
            corpus.write_text(corpus.read_text() + "\n\nAnother document, which was not there.")
        done = prepare([corpus], out, **{"vocab": 300} | change, overwrite=True)
        fresh = prepare([corpus], tmp_path / "fresh", **{"vocab": 300} | change, overwrite=True)
        assert done.fingerprint == fresh.fingerprint


def test_bad_input_leaves_nothing_but_does_not_touch_the_work_of_others(corpus, tmp_path):
    out = tmp_path / "out"
    with open_work(out) as work:
        work.claim({"files": []})
        (work.path / "unit-000000.safetensors").write_bytes(b"precious")
        with pytest.raises(InputError, match="is preparing text there"):
            prepare([corpus], out, vocab=300)
        (tmp_path / "kept").write_bytes((work.path / "work.json").read_bytes())
    (tmp_path / ".out.work").mkdir()
    (tmp_path / "kept").rename(tmp_path / ".out.work" / "work.json")
    with pytest.raises(InputError, match="no such file"):
        prepare([tmp_path / "nowhere.txt"], out)
    assert (tmp_path / ".out.work" / "work.json").exists()
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"\xff\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        prepare([bad], tmp_path / "other", vocab=300)
    assert not (tmp_path / ".other.work").exists()


def test_a_worker_that_dies_is_reported_and_its_work_kept(tmp_path, corpus):
    script = f"""
        import os
        from clozeworks.data.shards import units
        from clozeworks.data.shards.prepare import prepare
        from clozeworks.core.errors import InputError

        def words(sentence):
            os._exit(9) if "number 200" in sentence else None
            return [sentence]

        if __name__ == "__main__":
            units.UNIT_CHARACTERS = {SMALL}
            try:
                prepare([{str(corpus)!r}], {str(tmp_path / "out")!r}, vocab=300, segmenter=words, processes=2)
            except InputError as error:
                print("TOLD", error)
    """
    # only sentences with two Chinese characters reach a segmenter
    text = corpus.read_text().replace("stood", "站立 stood")
    corpus.write_text(text)
    file = tmp_path / "script.py"
    file.write_text(textwrap.dedent(script))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=60)
    assert "TOLD prepare: a worker process died" in done.stdout, done.stderr
    assert list((tmp_path / ".out.work").glob("unit-*"))


def test_a_segmenter_that_fails_costs_only_its_borders(tmp_path):
    def moody(sentence: str) -> list[str]:
        if "坏" in sentence:
            raise RuntimeError("no mood")
        return [sentence[:2], sentence[2:]] if "好" in sentence else ["x"]

    texts = ["今天天气好。", "坏天气也来。", "另外一句话。"] * 10
    kept = prepare(iter(texts), tmp_path / "a", vocab=200, heldout=0, segmenter=moody)
    plain = prepare(iter(texts), tmp_path / "b", vocab=200, heldout=0, segmenter="none")
    assert kept.splits["train"].tokens == plain.splits["train"].tokens
    assert kept.manifest["words"]["segmenter raised"] == 10
    assert kept.manifest["words"]["segmenter does not join"] == 10
    assert any("no mood" in note for note in kept.notes)
    one, two = Corpus.open(kept.out), Corpus.open(plain.out)
    whole = np.array([0]), np.array([len(one)])
    assert np.array_equal(one.take(*whole).tokens, two.take(*whole).tokens)


def test_phrases_and_entities_become_a_column(tmp_path):
    rows = [{"text": "我喜欢吃哈尔滨红肠。还喜欢跑步。", "phrases": [[4, 9]], "entities": [[4, 7], [13, 15]]}]
    rows += [{"text": "没有标注的一句话。"}]
    prepared = prepare(rows, tmp_path / "out", vocab=200, heldout=0, segmenter="none")
    columns = Corpus.open(prepared.out).take(np.array([0]), np.array([16]))
    assert columns.units is not None
    assert columns.units[:16].tolist() == [0, 0, 0, 0, 5, 10, 10, 2, 2, 0, 0, 0, 0, 4, 8, 0]
    assert prepared.manifest["words"]["misaligned"] == 0
    plain = prepare(iter(["没有标注的一句话。"]), tmp_path / "plain", vocab=200, heldout=0, segmenter="none")
    assert Corpus.open(plain.out).take(np.array([0]), np.array([3])).units is None


def test_pairs_are_documents_of_two_sides(tmp_path):
    rows = [{"en": f"the cat number {n} sat.  It slept.", "de": f"die Katze {n} sass."} for n in range(30)]
    rows += [{"en": "no answer", "de": " "}, {"en": "\x01", "de": "nichts"}]
    prepared = prepare(rows, tmp_path / "out", vocab=300, pairs=("en", "de"))
    assert sum(counted.documents for counted in prepared.splits.values()) == 30
    assert all(len(document) == 2 for document in texts_of(prepared, "train"))
    assert prepared.manifest["dropped"]["empty_pairs"] == 2
    assert "2 pairs with an empty side left out" in prepared.notes
    assert prepared.manifest["read"]["empty_rows"] == 1
    assert prepared.manifest["settings"]["pairs"] == ["en", "de"]


def test_the_summary_knows_unknowns_and_lengths(tmp_path):
    tokenizer = Tokenizer.train([story(1), story(2)], vocab=128)
    texts = ["The river ☃☃ stood. ☃☃ again!", "the house 龘 stood", "the paper"] * 5
    done = prepare(iter(texts), tmp_path / "out", tokenizer=tokenizer, heldout=0)
    assert done.manifest["unknowns"][0][1] == 10
    assert "☃" in done.manifest["unknowns"][0][0]
    assert ["龘", 5] in [list(pair) for pair in done.manifest["unknowns"]]
    bins = done.manifest["lengths"]["documents"]
    assert sum(count for *_, count in bins) == 15
    assert all(low <= high for low, high, _ in bins)


def test_many_spans_in_a_long_document_take_linear_time(tmp_path):
    sentence = "New York is a big place. "
    rows = [
        {
            "text": sentence * 8000,
            "entities": [[number * len(sentence), number * len(sentence) + 8] for number in range(8000)],
        }
    ]
    start = time.process_time()
    done = prepare(rows, tmp_path / "out", vocab=128, heldout=0)
    assert time.process_time() - start < 20  # about one second; it was minutes when each sentence looked at every span
    assert done.manifest["words"]["misaligned"] == 0
    units_of = Corpus.open(done.out).take(np.array([0]), np.array([done.splits["train"].tokens])).units
    assert units_of is not None
    assert int((units_of & 4 != 0).sum()) == 8000


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("x" * 300, "too long"),
        ("/proc/xx/yy", "cannot be made"),
        ("taken", "Not a directory"),
        ("", "path of a directory"),
    ],
)
def test_places_that_cannot_be(corpus, tmp_path, monkeypatch, out, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("precious")
    with pytest.raises(InputError, match=message):
        prepare([corpus], out, vocab=300, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken", "text"]


def test_a_source_that_fails_leaves_nothing(tmp_path):
    def failing():
        yield {"text": story(1)}
        raise RuntimeError("the database is gone")

    with pytest.raises(RuntimeError):
        prepare(failing(), tmp_path / "out", vocab=128)
    assert list(tmp_path.iterdir()) == []


def test_engines_keep_only_a_few_units_in_flight():
    taken = []

    def several():
        for number in range(50):
            taken.append(number)
            yield units.Unit(number, [Document(f"word {number}.")])

    method = units.TokenizeTask(Tokenizer.train(["word number"], vocab=64))
    made = engines.run_here(method, several())
    next(made)
    assert len(taken) <= 3
    assert sum(1 for _ in made) == 49


MEMORY = """
import resource, sys
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
if __name__ == "__main__":
    tokenizer = Tokenizer.load(sys.argv[2])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    prepare([sys.argv[1]], sys.argv[3], tokenizer=tokenizer, dedupe=True, processes=int(sys.argv[4]))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(grown, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
CEILING = 150_000  # kB above the bare interpreter with its imports, whatever the corpus (docs/prepare.md)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_memory_does_not_grow_with_the_text(tmp_path, processes):
    tokenizer = Tokenizer.train([story(number) for number in range(50)], vocab=300)
    tokenizer.save(tmp_path / "t")
    script = tmp_path / "script.py"
    script.write_text(MEMORY)
    grown = []
    for size in (1, 4):
        file = tmp_path / f"{size}.txt"
        file.write_text(("\n\n".join(map(story, range(60_000))) + "\n\n") * (2 * size))
        command = [sys.executable, str(script), str(file), str(tmp_path / "t"), str(tmp_path / f"out{size}")]
        done = subprocess.run([*command, str(processes)], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        grown.append([int(word) for word in done.stdout.split()])
    assert all(own < CEILING for own, _ in grown), grown
    assert grown[1][0] < 1.3 * grown[0][0] + 10_000, grown
    if processes > 1:
        assert grown[1][1] < 1.3 * grown[0][1] + 10_000, grown


@pytest.fixture
def ray_cluster(tmp_path, monkeypatch):
    """Two nodes of one core each, as processes of this machine, that talk only to those who know their token."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # before ray is imported: it looks at its environment once
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    pytest.importorskip("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    start = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=1", "--disable-usage-stats"]
    head = ["--head", "--node-ip-address=127.0.0.1", f"--port={address.split(':')[1]}", "--include-dashboard=false"]
    with tempfile.TemporaryDirectory(prefix="ray") as short:  # the path of a socket may have 107 characters
        log = (tmp_path / "ray.log").open("w")
        nodes = [subprocess.Popen([*start, *head, f"--temp-dir={short}"], stdout=log, stderr=log)]
        try:
            _await_port(address, nodes[0])
            nodes.append(subprocess.Popen([*start, f"--address={address}"], stdout=log, stderr=log))
            yield address
        finally:
            for node in reversed(nodes):
                node.terminate()
            for node in nodes:
                node.wait(timeout=60)
            log.close()


def _await_port(address: str, node: subprocess.Popen) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and node.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.2)
    pytest.fail("the head of the cluster did not start")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of ray's own
def test_a_ray_cluster_of_two_nodes_gives_the_same_bytes(corpus, tmp_path, ray_cluster, monkeypatch):
    import ray

    ray.init(address=ray_cluster, logging_level="ERROR", log_to_driver=False)
    try:
        deadline = time.monotonic() + 60
        while ray.cluster_resources().get("CPU", 0) < 2:
            assert time.monotonic() < deadline, "the second node did not join"
            time.sleep(0.2)
        nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"]["CPU"] == 1}
        assert len(nodes) == 2  # a worker takes a core, so two workers are on two nodes
        prepare([corpus], tmp_path / "ray", vocab=300, shard_tokens=2000, engine="ray")
    finally:
        ray.shutdown()
    prepare([corpus], tmp_path / "here", vocab=300, shard_tokens=2000)
    assert digest(tmp_path / "ray") == digest(tmp_path / "here")


def test_a_lock_falls_with_its_process(tmp_path):
    code = f"""
import time
from pathlib import Path
from clozeworks.core import atomic_io
with atomic_io.hold_lock(Path({str(tmp_path)!r}), "is at work"):
    print("held", flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(InputError, match=f"process {process.pid} on .* too"), atomic_io.hold_lock(tmp_path, "too"):
        pass
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 5
    while True:
        try:
            with atomic_io.hold_lock(tmp_path, "too"):
                break
        except InputError:
            assert time.monotonic() < deadline
