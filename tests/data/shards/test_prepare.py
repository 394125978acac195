import json
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import Prepared, prepare
from clozeworks.data.text.documents import Document
from clozeworks.data.tokens.tokenizer import Tokenizer

NOUNS = ["river", "house", "window", "garden", "paper", "stone", "bird", "letter", "winter", "morning", "island"]


def story(number: int) -> str:
    one, two = NOUNS[number % len(NOUNS)], NOUNS[number * 7 % len(NOUNS)]
    return f"The {one} number {number} stood near the {two}. Nobody saw it!\nA second paragraph tells of {one}s."


@pytest.fixture
def corpus(tmp_path) -> Path:
    file = tmp_path / "stories.txt"
    file.write_text("\n\n".join(map(story, range(400))), encoding="utf-8")
    return file


def texts_of(prepared: Prepared, split: str) -> list[list[str]]:
    """The sentences of every document of a split, decoded."""
    tokenizer, data = Tokenizer.load(prepared.out), Corpus.open(prepared.out, split, verify="hash")
    tokens = data.take(np.array([0]), np.array([len(data)])).tokens
    spans = [
        tokenizer.decode(tokens[data.sentences[i] : data.sentences[i + 1]]) for i in range(len(data.sentences) - 1)
    ]
    return [spans[data.documents[i] : data.documents[i + 1]] for i in range(len(data.documents) - 1)]


def refusal(*arguments, **options) -> str:
    with pytest.raises(InputError) as caught:
        prepare(*arguments, **options)
    return str(caught.value)


def test_the_road_from_text_to_shards(corpus, tmp_path):
    seen: list[tuple[str, int, int]] = []
    prepared = prepare([corpus], tmp_path / "out", vocab=300, progress=lambda *facts: seen.append(facts))
    train, held = texts_of(prepared, "train"), texts_of(prepared, "heldout")
    assert len(train) + len(held) == 400
    assert 1 <= len(held) <= 25
    assert all(len(document) == 3 for document in train + held)
    documents = {tuple(document) for document in train + held}
    assert (
        "the river number 0 stood near the river.",
        "nobody saw it!",
        "a second paragraph tells of rivers.",
    ) in documents
    manifest = prepared.manifest
    assert manifest["splits"]["train"]["documents"] == len(train) == prepared.splits["train"].documents
    assert manifest["sources"] == [{"path": str(corpus), "bytes": corpus.stat().st_size}]
    assert manifest["tokenizer"]["fingerprint"] == Tokenizer.load(prepared.out).fingerprint
    assert manifest["settings"]["vocab"] == 300
    assert json.loads((prepared.out / "manifest.json").read_text()) == manifest
    assert list(dict.fromkeys(stage for stage, _, _ in seen)) == ["tokenizer", "units", "shards"]
    assert all(0 <= done <= total for _, done, total in seen)
    assert [facts for facts in seen if facts[0] == "units"][-1][1:] == (corpus.stat().st_size,) * 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_same_text_gives_the_same_bytes(corpus, tmp_path):
    one = prepare([corpus], tmp_path / "one", vocab=300, shard_tokens=2000)
    two = prepare([corpus], tmp_path / "two", vocab=300, shard_tokens=2000)
    assert one.fingerprint == two.fingerprint
    assert len(one.manifest["shards"]) > 3
    whole = prepare([corpus], tmp_path / "whole", vocab=300)
    assert texts_of(whole, "train") == texts_of(one, "train")


def test_copies_of_a_document_go_to_one_split(tmp_path):
    documents = [Document(story(number % 50)) for number in range(200)]
    prepared = prepare(documents, tmp_path / "out", vocab=300, heldout=0.3)
    train, held = ({tuple(d) for d in texts_of(prepared, split)} for split in ("train", "heldout"))
    assert not train & held
    assert len(train) + len(held) == 50


@pytest.mark.parametrize("share", [0.0001, 0.5, 0.9999])
def test_two_documents_are_enough_for_two_splits(tmp_path, share):
    for seed in range(10):
        documents = [Document(story(seed)), Document(story(seed + 20))]
        prepared = prepare(documents, tmp_path / str(seed), vocab=128, heldout=share)
        assert {name: counted.documents for name, counted in prepared.splits.items()} == {"train": 1, "heldout": 1}


def test_one_document_has_no_held_out_split_and_says_so(tmp_path):
    prepared = prepare([Document("Only one. Really one.")], tmp_path / "out", vocab=128)
    assert list(prepared.splits) == ["train"]
    assert "no held-out split: there is one document only" in prepared.notes[0]
    assert any("smaller than asked" in note for note in prepare([Document("a")], tmp_path / "b").notes)
    assert prepare([Document("a b."), Document("c d.")], tmp_path / "none", vocab=64, heldout=0).splits.keys() == {
        "train"
    }


def test_an_iterator_is_read_once_and_gives_the_same(tmp_path):
    documents = [Document(story(number)) for number in range(30)]
    listed = prepare(documents, tmp_path / "list", vocab=300)
    streamed = prepare(iter(documents), tmp_path / "iterator", vocab=300)
    assert listed.fingerprint == streamed.fingerprint
    assert not list((tmp_path / "iterator").glob(".*"))


def test_given_sentences_and_words_are_kept(tmp_path):
    words = [["我们", "今天", "去"], ["北京大学", "。"]]
    documents = [Document(words=words), Document(sentences=["first. second", "third"])]
    prepared = prepare(documents, tmp_path / "out", vocab=200, lang="zh", heldout=0)
    data = Corpus.open(prepared.out)
    assert data.documents.tolist() == [0, 2, 4]
    starts = data.take(data.sentences[:2], data.sentences[1:3])[1]
    assert starts.tolist() == [True, False, True, False, True, True, False, False, False, True]


def test_a_tokenizer_can_be_given(corpus, tmp_path):
    tokenizer = Tokenizer.train([story(1), story(2)], vocab=200)
    tokenizer.save(tmp_path / "t")
    by_path = prepare([corpus], tmp_path / "a", tokenizer=tmp_path / "t")
    by_object = prepare([corpus], tmp_path / "b", tokenizer=tokenizer)
    assert by_path.fingerprint == by_object.fingerprint
    assert by_path.manifest["tokenizer"]["fingerprint"] == tokenizer.fingerprint
    byte_level = prepare([corpus], tmp_path / "c", tokenizer="bytes", vocab=400)
    assert byte_level.manifest["tokenizer"]["specials"]["mask"] == "<mask>"
    assert "did you mean wordpiece?" in refusal([corpus], tmp_path / "d", tokenizer="wordpeice")


def test_problems_are_counted_and_reported(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"Good text here.\n\nBad \xff text\0.\n\n\x01\n\n" + "\n\n".join(map(story, range(9))).encode())
    assert "line 3" in refusal([file], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    prepared = prepare([file], tmp_path / "out", errors="replace", vocab=200)
    assert prepared.manifest["unicode"] == {"replaced": 1, "skipped": 0, "nul": 1}
    assert prepared.manifest["dropped"]["empty_documents"] == 1
    notes = " ".join(prepared.notes)
    assert all(part in notes for part in ("1 invalid byte", "1 NUL", "1 document without a token"))


def test_a_tokenizer_of_another_language_is_noticed(tmp_path):
    tokenizer = Tokenizer.train([story(1)], vocab=128)
    prepared = prepare(
        [Document("我们今天去北京大学。"), Document("这本书很好。")], tmp_path / "out", tokenizer=tokenizer
    )
    assert prepared.splits["train"].unknown > 0
    assert any("unknown" in note for note in prepared.notes)


def test_text_without_borders_is_cut_and_nothing_is_lost(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("river house " * 30_000)
    prepared = prepare([file], tmp_path / "out", vocab=100, heldout=0)
    assert prepared.splits["train"].words == 60_000
    assert prepared.splits["train"].documents == 1
    assert prepared.manifest["dropped"]["long_sentences_cut"] == 3
    assert any("nothing was lost" in note for note in prepared.notes)


def test_existing_directories_are_safe(corpus, tmp_path):
    out = tmp_path / "out"
    first = prepare([corpus], out, vocab=300)
    assert "--overwrite" in refusal([corpus], out)
    assert Corpus.open(out, verify="hash").fingerprint == first.fingerprint
    second = prepare([corpus], out, vocab=200, overwrite=True)
    assert Corpus.open(out, verify="hash").fingerprint == second.fingerprint != first.fingerprint
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.doc").write_text("precious")
    assert "other content" in refusal([corpus], other, overwrite=True)
    assert (other / "thesis.doc").read_text() == "precious"
    (tmp_path / "new").mkdir()
    assert prepare([corpus], tmp_path / "new", vocab=300).fingerprint == first.fingerprint


def test_failure_keeps_what_was_there(corpus, tmp_path):
    out = tmp_path / "out"
    first = prepare([corpus], out, vocab=300)

    def failing() -> Iterator[Document]:
        yield Document(story(1))
        raise InputError("here", "a failure", "none", "nothing")

    assert "a failure" in refusal(failing(), out, overwrite=True)
    assert Corpus.open(out, verify="hash").fingerprint == first.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "stories.txt"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heldout": 1.0}, "heldout: 1.0"),
        ({"heldout": -0.1}, "heldout"),
        ({"shard_tokens": 0}, "shard_tokens"),
        ({"vocab": 3}, "vocab: 3"),
        ({"lang": "xx"}, "en, zh"),
    ],
)
def test_settings_that_cannot_be(corpus, tmp_path, options, message):
    assert message in refusal([corpus], tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_no_text_at_all(tmp_path):
    assert "at least one file" in refusal([], tmp_path / "out")
    assert "at least one document" in refusal(iter([]), tmp_path / "out")
    assert "no token" in refusal([Document("\x01\x02")], tmp_path / "out")


def child(script: str, **options) -> subprocess.CompletedProcess[str]:
    code = textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, **options)


TELL = """
from clozeworks.data.shards.prepare import prepare
from clozeworks.core.errors import InputError
try:
    prepare([{source!r}], {out!r}, vocab=300)
except InputError as error:
    print("TOLD", error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_disk_without_room_is_reported_and_leaves_nothing(corpus, tmp_path):
    limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
    result = child(limit + TELL.format(source=str(corpus), out=str(tmp_path / "out")))
    assert "TOLD" in result.stdout, result.stderr
    assert "too large" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stories.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
def test_a_read_only_directory_is_reported():
    with tempfile.TemporaryDirectory() as name:  # pytest's own directories are closed to other users
        closed, source = Path(name, "closed"), Path(name, "a.txt")
        source.write_text(story(1))
        Path(name).chmod(0o755)
        closed.mkdir(mode=0o555)
        # root may write anywhere, so it becomes somebody else once everything is imported
        drop = "import os, clozeworks.data.shards.prepare\n"
        drop += "if os.getuid() == 0:\n    os.setgid(65534)\n    os.setuid(65534)\n"
        result = child(drop + TELL.format(source=str(source), out=str(closed / "out")))
        assert "TOLD" in result.stdout, result.stderr
        assert "permission denied" in result.stdout
        assert list(closed.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_kill_leaves_nothing_half_written(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("\n\n".join(map(story, range(4_000))))
    out = tmp_path / "out"
    call = f"prepare([{str(file)!r}], {str(out)!r}, vocab=300, shard_tokens=9999)"
    code = f"from clozeworks.data.shards.prepare import prepare; {call}"
    for wait in (0.2, 0.4, 0.6, 0.8):
        process = subprocess.Popen([sys.executable, "-c", code])
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if out.exists():
            Corpus.open(out, verify="hash")
            break
    prepare([file], out, vocab=300, overwrite=True)
    assert len(texts_of(prepare([file], tmp_path / "two", vocab=300), "train")) > 3_800
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "out", "two"]


@pytest.mark.slow
def test_memory_stays_bounded(tmp_path):
    """A corpus of 40 MB; two passes, training and shards need far less than the text."""
    file = tmp_path / "a.txt"
    block = "\n\n".join(map(story, range(20_000))) + "\n\n"
    file.write_text(block * 8)
    script = f"""
        import resource
        from clozeworks.data.shards.prepare import prepare
        from clozeworks.data.tokens.tokenizer import Tokenizer
        tokenizer = Tokenizer.train([{story(1)!r}], vocab=300)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        prepare([{str(file)!r}], {str(tmp_path / "out")!r}, tokenizer=tokenizer)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    result = child(script)
    grown = int(result.stdout) / (1 if sys.platform != "darwin" else 1024)
    assert grown < 120_000, result.stderr  # kB


def test_data_imports_no_torch():
    assert (
        child(
            "import sys, clozeworks.data.shards.prepare, clozeworks.corpus; assert 'torch' not in sys.modules"
        ).returncode
        == 0
    )


def test_parts_of_a_long_document_become_one_document(tmp_path):
    parts = [Document(story(1)), Document(story(2), part=1), Document(story(3), part=2), Document(story(4))]
    prepared = prepare(parts, tmp_path / "out", vocab=200, heldout=0.5)
    lengths = sorted(len(document) for split in ("train", "heldout") for document in texts_of(prepared, split))
    assert lengths == [3, 9]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("manifest.json", '"split": "heldout"', '"split": "held$ut"'),
        ("manifest.json", '"tokenizer": {', '"tokanizer": {'),
        ("tokenizer_config.json", '"[MASK]"', '"[UNK]"'),
        ("tokenizer.json", '"[CLS]"', '"[CLW]"'),
    ],
)
def test_damage_beside_the_shards_is_refused(corpus, tmp_path, file, old, new):
    prepare([corpus], tmp_path / "out", vocab=300)
    text = (tmp_path / "out" / file).read_text()
    assert old in text
    (tmp_path / "out" / file).write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match="must be those that were prepared"):
        Corpus.open(tmp_path / "out", verify="hash")


def test_text_that_changes_leaves_nothing(tmp_path: Path):
    file, out = tmp_path / "corpus.txt", tmp_path / "data"
    file.write_text("A sentence of a document.\n\n" * 500)

    def write_more(stage: str, done: int, total: int) -> None:
        if stage == "units":
            file.write_text("Another text.\n")

    with pytest.raises(InputError, match="it changed while it was read"):
        prepare(file, out, vocab=100, progress=write_more)
    assert [each.name for each in tmp_path.iterdir()] == ["corpus.txt"]


def test_work_that_a_kill_left_behind_goes_with_the_next_command(tmp_path: Path):
    """Killed after the directory has its name, before the clean-up."""
    file, out = tmp_path / "corpus.txt", tmp_path / "data"
    file.write_text("A sentence of a document.\n\n" * 20)
    prepare(file, out, vocab=100)
    work = tmp_path / ".data.work"
    work.mkdir()
    (work / "unit-000000.safetensors").write_bytes(b"left")
    with pytest.raises(InputError, match="holds prepared text already"):
        prepare(file, out, vocab=100)
    assert not work.exists()
