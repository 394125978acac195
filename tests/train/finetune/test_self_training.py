"""Rows without labels, learned as a teacher answers them."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError
from clozeworks.evaluate.baselines import score_tfidf
from clozeworks.train.finetune import run as running
from clozeworks.train.finetune.entry import plan
from clozeworks.train.finetune.forecast import forecast_finetuning
from clozeworks.train.finetune.options import FinetuneOptions
from clozeworks.train.finetune.self_training import ANSWERS
from clozeworks.train.run_dir import TEACHER
from tests.labelled import rows

pytestmark = pytest.mark.usefixtures("one_thread")
HOW = {"epochs": 2, "batch_size": 8, "max_length": 16, "changes": {"train.learning_rate": "3e-3"}, "progress": False}
TEXTS = [{"text": row["text"]} for row in rows(40, seed=7)]


def tuned(road: Path, out: Path, **how: object):
    return cw.finetune("classify", road / "run", rows(24), out=out, **{**HOW, "unlabelled": TEXTS, **how})


def answers(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / TEACHER / ANSWERS).read_text().splitlines()]


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(road: Path, tmp_path_factory: pytest.TempPathFactory):
    """A run that nothing interrupts."""
    torch.set_num_threads(1)  # as in the tests that compare with it
    return tuned(road, tmp_path_factory.mktemp("self") / "run", dev_share=0.25)


def test_each_new_text_is_learned_once_with_the_mean_of_three_views(whole):
    pytest.importorskip("sklearn")
    learned = plan("classify", whole.out, rows(24), options=FinetuneOptions(dev_share=0.25)).train.rows
    known = {row["text"] for row in rows(24)}
    kept = answers(whole.out)
    assert [row["text"] for row in kept] == [
        text for text in dict.fromkeys(r["text"] for r in TEXTS) if text not in known
    ]
    texts, labels = [row["text"] for row in learned], [row["label"] for row in learned]
    views = [[each["scores"] for each in cw.load(whole.out / TEACHER).predict([row["text"] for row in kept])]]
    views += [score_tfidf(unit, texts, labels, [row["text"] for row in kept]) or [] for unit in ("words", "characters")]
    for row, *scores in zip(kept, *views, strict=True):
        mean = {label: sum(each[label] for each in scores) / 3 for label in ("cold", "warm")}
        assert row["scores"] == pytest.approx(mean, abs=1e-6)
        assert row["label"] == max(mean, key=mean.__getitem__)
    assert whole.rows == {"train": 18, "dev": 6, "unlabelled": len(kept)}


def test_the_teacher_is_the_model_of_the_labelled_rows_alone(whole, road: Path, tmp_path: Path):
    plain = tuned(road, tmp_path / "plain", dev_share=0.25, unlabelled=None)
    assert weights(plain.out) == weights(whole.out / TEACHER) != weights(whole.out)
    assert whole.teacher == plain.metrics
    assert plain.teacher == {}


@pytest.mark.parametrize("where", [TEACHER, "run"])
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
    stopped = tuned(road, tmp_path / "run", dev_share=0.25)
    assert (stopped.finished, stopped.signal, stopped.metrics) == (False, signal.SIGTERM, {})
    assert not (tmp_path / "run" / "model.safetensors").exists()
    monkeypatch.setattr(running, "finetune_run", first)
    again = tuned(road, tmp_path / "run", dev_share=0.25)
    assert (again.metrics, again.teacher) == (whole.metrics, whole.teacher)
    assert weights(tmp_path / "run") == weights(whole.out)


def test_answers_to_other_rows_are_not_taken(whole, road: Path):
    with pytest.raises(InputError, match="answers to other rows"):
        tuned(road, whole.out, dev_share=0.25, unlabelled=TEXTS[:20])


def test_each_fold_has_a_teacher_of_its_own_rows_and_resumes(road: Path, tmp_path: Path, monkeypatch):
    learned = dict[str, set[str]]()
    learning = running.finetune_run

    def watch(recipe, tokenizer, train, dev, place, **how):
        learned["/".join(Path(place).parts[-2:])] = {row["text"] for row in train.rows}
        return learning(recipe, tokenizer, train, dev, place, **how)

    monkeypatch.setattr(running, "finetune_run", watch)
    done = tuned(road, tmp_path / "run", folds=2, epochs=1)
    known = {row["text"] for row in rows(24)}
    new = {row["text"] for row in TEXTS} - known
    one, two = (learned[f"fold-{n}/{TEACHER}"] for n in (1, 2))
    assert not one & two
    assert one | two == learned[f"run/{TEACHER}"] == known
    assert (learned["run/fold-1"], learned["run/fold-2"]) == (one | new, two | new)
    again = tuned(road, tmp_path / "run", folds=2, epochs=1)
    assert (again.metrics, again.folds) == (done.metrics, 2)


def test_seeds_share_a_teacher_and_continued_pretraining_comes_first(road: Path, tmp_path: Path):
    done = tuned(road, tmp_path / "run", seeds=2, dev_share=0.25, continue_pretraining=2, epochs=1)
    assert sorted(done.seeds) == [0, 1]
    assert (tmp_path / "run" / "continued").is_dir()
    assert not list((tmp_path / "run" / TEACHER).glob("continued"))
    assert (tmp_path / "run" / TEACHER / "seeds.json").is_file()


def test_labels_of_several_are_taught_by_the_model_alone(road: Path, tmp_path: Path):
    given = [{"text": row["text"], "label": [row["label"]] * (n % 3 > 0)} for n, row in enumerate(rows(24))]
    how = {**HOW, "epochs": 1, "unlabelled": TEXTS}
    done = cw.finetune("classify", road / "run", given, out=tmp_path / "run", **how)
    kept = answers(tmp_path / "run")
    alone = cw.load(tmp_path / "run" / TEACHER).predict([row["text"] for row in kept])
    for row, answer in zip(kept, alone, strict=True):
        assert row["scores"] == pytest.approx(answer["scores"], abs=1e-6)
        assert row["label"] == answer["label"]
    assert done.model.recipe.task.many


@pytest.mark.parametrize(
    ("task", "given", "unlabelled", "message"),
    [
        ("classify", rows(24), rows(24), "24 rows, all known"),
        ("classify", [{"text": "a", "score": 1.0}, {"text": "b", "score": 2.0}], TEXTS, "with classify of numbers"),
        ("tag", [{"tokens": ["a"], "tags": ["B-X"]}], [{"tokens": ["a"]}], "with tag; only classify"),
        ("classify", rows(24), [{"other": "a"}], "no column for text"),
    ],
)
def test_what_cannot_be_learned_so_is_refused(road: Path, task: str, given: list, unlabelled: list, message: str):
    with pytest.raises(InputError, match=message):
        plan(task, road / "run", given, options=FinetuneOptions(max_length=16, unlabelled=unlabelled))


def test_a_forecast_counts_both_runs(road: Path):
    options = {"max_length": 16, "epochs": 2, "batch_size": 8}
    made = plan("classify", road / "run", rows(24), options=FinetuneOptions(**options, unlabelled=TEXTS))
    both = forecast_finetuning(made)[0].tokens
    alone = forecast_finetuning(plan("classify", road / "run", rows(24), options=FinetuneOptions(**options)))[0].tokens
    assert made.unlabelled is not None
    more = made.task.examples(made.unlabelled, made.tokenizer, truth=False)
    assert both == 2 * alone + 2 * int(more.lengths.sum())
