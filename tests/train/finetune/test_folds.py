"""Cross-validation, and rows that are too few to put some aside."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import clozeworks as cw
from clozeworks.core.errors import InputError
from clozeworks.train.finetune import folds as folding
from clozeworks.train.finetune import run as running
from clozeworks.train.finetune.entry import plan
from clozeworks.train.finetune.options import FEW, FinetuneOptions
from tests.labelled import rows

pytestmark = pytest.mark.usefixtures("one_thread")
HOW = {"epochs": 2, "batch_size": 8, "max_length": 16, "changes": {"train.learning_rate": "3e-3"}, "progress": False}


def tuned(road: Path, out: Path, given: list, **how: object):
    return cw.finetune("classify", road / "run", given, out=out, **{**HOW, **how})


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def planned(road: Path, given: list, task: str = "classify", **options: object):
    return plan(task, road / "run", given, options=FinetuneOptions(**{"max_length": 16, **options}))


def test_few_rows_are_all_learned_from_and_more_give_a_tenth(road: Path):
    few = planned(road, rows())
    assert (len(few.train), few.dev) == (48, None)
    assert [note for note in few.notes if "nothing measures" in note] == [
        "fewer than 1,000 rows: all are learned from, nothing measures; --folds 5 estimates, --dev FILE measures"
    ]
    many = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(FEW)]
    assert planned(road, many).rows == {"train": 900, "dev": 100}
    assert planned(road, many[:-1]).rows == {"train": 999}
    assert planned(road, many, dev_share=0.0).rows == {"train": 1000}


@pytest.mark.parametrize("option", [{"dev_share": 0.1}, {"patience": 1}, {"seeds": 2}, {"limit": 20}])
def test_what_chooses_has_rows_to_choose_by(road: Path, option: dict):
    made = planned(road, rows(), **option)
    assert made.dev
    assert not any("nothing measures" in note for note in made.notes)


def test_every_row_is_answered_once_by_a_model_that_did_not_learn_from_it(road: Path, tmp_path: Path, monkeypatch):
    given = [{"text": f"{row['text']} {n}", "label": row["label"]} for n, row in enumerate(rows(40))]
    truth = {row["text"]: row["label"] for row in given}
    learned, answered = dict[str, list[str]](), dict[str, list[str]]()
    learning, telling = running.finetune_run, folding.predict_records

    def watch(recipe, tokenizer, train, dev, place, **how):
        learned[Path(place).name] = [row["text"] for row in train.rows]
        assert dev is None
        return learning(recipe, tokenizer, train, dev, place, **how)

    def tell(model, task, table, *more, **how):
        answered[f"fold-{len(answered) + 1}"] = [row["text"] for row in table.rows]
        return telling(model, task, table, *more, **how)

    monkeypatch.setattr(running, "finetune_run", watch)
    monkeypatch.setattr(folding, "predict_records", tell)
    done = tuned(road, tmp_path / "run", given, folds=4)
    assert sorted(text for part in answered.values() for text in part) == sorted(truth)
    assert learned["run"] == list(truth)
    counts, right = Counter(truth.values()), 0
    for fold, part in answered.items():
        assert sorted(learned[fold] + part) == sorted(truth)
        for label, count in Counter(truth[text] for text in part).items():
            assert abs(count - counts[label] / 4) < 1
        answers = cw.load(tmp_path / "run" / fold).predict(part)
        right += sum(answer["label"] == truth[text] for answer, text in zip(answers, part, strict=True))
    assert done.metrics["accuracy"] == pytest.approx(right / 40)
    low, high = done.intervals["accuracy"]
    assert low <= done.metrics["accuracy"] <= high
    assert (done.folds, done.rows) == (4, {"train": 40})
    kept = json.loads((tmp_path / "run" / folding.FOLDS).read_text())
    assert (kept["folds"], kept["metrics"]) == (4, done.metrics)


@pytest.fixture(scope="module")
def whole(road: Path, tmp_path_factory: pytest.TempPathFactory):
    """A run of two folds that nothing interrupts."""
    return tuned(road, tmp_path_factory.mktemp("folds") / "run", rows(24), folds=2)


def test_the_model_is_that_of_a_run_without_folds(whole, road: Path, tmp_path: Path):
    tuned(road, tmp_path / "plain", rows(24))
    assert weights(tmp_path / "plain") == weights(whole.out)
    assert weights(whole.out / "fold-1") != weights(whole.out / "fold-2")
    later = tuned(road, tmp_path / "plain", rows(24), folds=2)  # estimated afterwards
    assert later.metrics == tuned(road, whole.out, rows(24), folds=2).metrics == whole.metrics
    with pytest.raises(InputError, match="is other data"):
        tuned(road, tmp_path / "plain", rows(32), folds=2)
    with pytest.raises(InputError, match="is other data"):
        tuned(road, whole.out, rows(24), folds=3)


@pytest.mark.parametrize("where", ["fold-2", "run"])
def test_interrupted_and_resumed_it_is_the_same(whole, road: Path, tmp_path: Path, monkeypatch, where: str):
    first = running.finetune_run

    class Stop:
        def write(self, row: dict) -> None:
            if row.get("step") == 1:
                os.kill(os.getpid(), signal.SIGTERM)

        def close(self) -> None: ...

    def cut(recipe, tokenizer, train, dev, place, **how):
        how |= {"writers": [Stop()]} if Path(place).name == where else {}
        return first(recipe, tokenizer, train, dev, place, **how)

    monkeypatch.setattr(running, "finetune_run", cut)
    stopped = tuned(road, tmp_path / "cut" / "run", rows(24), folds=2)
    assert (stopped.finished, stopped.signal, stopped.metrics) == (False, signal.SIGTERM, {})
    assert not (tmp_path / "cut" / "run" / "model.safetensors").exists()
    monkeypatch.setattr(running, "finetune_run", first)
    again = tuned(road, tmp_path / "cut" / "run", rows(24), folds=2)
    assert (again.metrics, again.intervals) == (whole.metrics, whole.intervals)
    for name in ("", "fold-1", "fold-2"):
        assert weights(tmp_path / "cut" / "run" / name) == weights(whole.out / name)


def test_labels_that_a_fold_has_not_seen_are_wrong_and_other_tasks_have_folds(road: Path, tmp_path: Path):
    given = [*rows(16), {"text": "one of its kind", "label": "rare", "number": 16}]
    done = tuned(road, tmp_path / "rare", given, folds=2, epochs=1)
    assert done.metrics["accuracy"] < 1
    how = {"folds": 2, "epochs": 1, "max_length": 24, "progress": False}
    texts = [row["text"] for row in rows(12)]
    tables = {
        "tag": [{"tokens": text.split(), "tags": ["B-X"] + ["O"] * (len(text.split()) - 1)} for text in texts],
        "embed": [{"text_a": text, "text_b": f"{text} {n}", "score": n % 3} for n, text in enumerate(texts)],
        "pair": [{"text_a": text, "text_b": f"{text} {n}", "score": n % 3} for n, text in enumerate(texts)],
    }
    names = {"tag": "f1", "embed": "spearman", "pair": "spearman"}
    for task, table in tables.items():
        done = cw.finetune(task, road / "run", table, out=tmp_path / task, **how)
        assert np.isfinite(done.metrics[names[task]])


def test_pretraining_continues_with_the_texts_of_the_fold_alone(road: Path, tmp_path: Path):
    given = [{"text": f"{row['text']} word{n}", "label": row["label"]} for n, row in enumerate(rows(12))]
    tuned(road, tmp_path / "run", given, folds=2, epochs=1, continue_pretraining=1)
    digests = [(tmp_path / "run" / name / "text" / "rows.json").read_text() for name in ("", "fold-1", "fold-2")]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 1}, "at least 2 are needed"),
        ({"folds": 99}, "a row for each"),
        ({"folds": 2, "seeds": 2}, "together with --seeds"),
        ({"folds": 2, "patience": 2}, "together with --patience"),
        ({"folds": 2, "dev_share": 0.1}, "together with --dev-share"),
        ({"folds": 2, "dev": rows(8)}, "together with --dev"),
        ({"patience": 2, "dev_share": 0.0}, "--patience: together with a dev_share of 0"),
        ({"seeds": 2, "dev_share": 0.0}, "--seeds: together with a dev_share of 0"),
    ],
)
def test_what_does_not_go_together_is_refused(road: Path, tmp_path: Path, options: dict, message: str):
    with pytest.raises(InputError) as error:
        tuned(road, tmp_path / "run", rows(), **options)
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_fold_without_a_second_class_is_refused_before_anything_is_trained(road: Path, tmp_path: Path):
    given = [{"text": f"text {n}", "label": "a" if n else "b"} for n in range(12)]
    with pytest.raises(InputError, match="one class only, a"):
        tuned(road, tmp_path / "run", given, folds=3)
    assert not (tmp_path / "run").exists()
