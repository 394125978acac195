"""What is planned for rows and an encoder, and fine-tuning from Python."""

import json
from pathlib import Path

import pytest

import clozeworks as cw
from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.optim.settings import LayerRates, SlantedTriangular
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.heads.crf import CRF
from clozeworks.tasks.heads.task_encoder import TaskEncoder
from clozeworks.tasks.layer_selection import JoinLayers, ScalarMix, SumLayers
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.tag import Tag
from clozeworks.train.finetune.continue_pretraining import collect_texts
from clozeworks.train.finetune.entry import plan
from clozeworks.train.finetune.options import FinetuneOptions
from tests.labelled import rows


@pytest.fixture(scope="module")
def encoder(road: Path) -> TextEncoder:
    return cw.load(road / "run")


def planned(encoder: TextEncoder, task: str = "classify", given: list | None = None, **options: object):
    return plan(
        task, encoder, rows() if given is None else given, options=FinetuneOptions(**{"max_length": 32, **options})
    )


def test_what_is_wished_is_in_the_recipe(encoder: TextEncoder):
    made = planned(encoder, gradual_unfreezing=True)
    assert made.recipe.finetune is not None
    assert made.recipe.finetune.unfreeze_every == 2  # an epoch of 43 rows in batches of 32
    assert made.recipe.finetune.epochs == 20  # few rows
    assert made.recipe.train.steps == 40
    assert isinstance(made.recipe.train.schedule, SlantedTriangular)
    assert made.recipe.train.optimizer == LayerRates(factor=1 / 2.6)
    assert planned(encoder, layer_decay=0.9).recipe.train.optimizer == LayerRates(factor=0.9)
    assert planned(encoder, freeze=True).recipe.train.learning_rate == 1e-3
    depth = encoder.recipe.encoder.stack.depth
    for features, reading in (("sum", SumLayers(depth)), ("concat", JoinLayers(depth)), ("mix", ScalarMix(depth))):
        made = planned(encoder, features=features)
        assert made.task.reading == reading
        assert not made.task.pools  # the pooler reads the last layer alone
    assert "some never begin to learn" in planned(encoder, gradual_unfreezing=True, epochs=2).notes[-1]


def test_the_head_reads_what_vectors_of_texts_were_trained_as(road: Path, encoder: TextEncoder, tmp_path: Path):
    cw.save(encoder, tmp_path / "st", format="sentence-transformers")
    for mode, place in (("mean", "mean"), ("cls", "first")):
        config = json.loads((tmp_path / "st" / "1_Pooling" / "config.json").read_text())
        config |= {"pooling_mode_mean_tokens": mode == "mean", "pooling_mode_cls_token": mode == "cls"}
        (tmp_path / "st" / "1_Pooling" / "config.json").write_text(json.dumps(config | {"pooling_mode": mode}))
        task = planned(cw.load(tmp_path / "st")).task
        assert isinstance(task, Classify)
        assert task.summary.place == place
    assert isinstance(task := planned(encoder).task, Classify)
    assert task.summary.place == "first"


def test_over_readers_no_pooler_is_read(encoder: TextEncoder):
    readers = {"task.task_encoder": "TaskEncoder"}
    made = planned(encoder, changes=readers)
    assert isinstance(made.task, Classify)
    assert made.task.summary.place == "concat"
    made = planned(encoder, changes=readers | {"task.summary": "Summary(place=mean, dense=own)"})
    assert isinstance(made.task, Classify)
    assert made.task.summary == Summary("mean", "own")
    poolers = readers | {"task.summary": "Summary(dense=pooler)"}
    with pytest.raises(RecipeError, match="the pooler reads the last layer alone"):
        planned(encoder, changes=poolers)


def test_readers_want_words_as_wide_as_what_is_said_of_them():
    r = cw.recipe("awd_lstm_mini")
    r.objective.losses = (Tag(labels=("a", "b"), task_encoder=TaskEncoder()),)
    spec.check(r, r.name)
    assert isinstance(r.encoder.stack.block, tuple)
    r.encoder.stack.block, r.encoder.stack.depth = r.encoder.stack.block[:2], 2
    with pytest.raises(RecipeError, match="one width, not 128 and 256"):
        spec.check(r, r.name)


def test_changes_by_path_come_last_and_steps_follow(encoder: TextEncoder):
    made = planned(
        encoder, changes={"finetune.epochs": "2", "finetune.batch_size": "10", "train.learning_rate": "1e-2"}
    )
    assert (made.recipe.train.steps, made.recipe.train.evaluate_every) == (10, 5)
    assert made.recipe.train.learning_rate == 1e-2
    made = planned(encoder, changes={"finetune.batch_size": "10"}, gradual_unfreezing=True)
    assert made.recipe.finetune is not None
    assert made.recipe.finetune.unfreeze_every == 5
    assert planned(encoder, changes={"train.steps": "7"}).recipe.train.steps == 7


def test_fields_of_the_task_are_set_before_rows_are_read(encoder: TextEncoder):
    made = planned(encoder, changes={"task.balance": "true"})
    assert isinstance(made.task, Classify)
    assert len(made.task.weights) == 2
    pairs = [{"text_a": row["text"], "text_b": row["text"], "score": n % 5} for n, row in enumerate(rows(20))]
    both = planned(encoder, "pair", pairs, changes={"task.both": "true"})
    assert isinstance(both.task, Pair)
    assert both.task.graded
    assert len(both.examples.examples) == 2 * len(both.train)
    tags = [
        {"tokens": row["text"].split(), "tags": ["B-X"] + ["O"] * (len(row["text"].split()) - 1)} for row in rows(20)
    ]
    tagged = planned(encoder, "tag", tags, changes={"task.crf": "CRF"})
    assert isinstance(tagged.task, Tag)
    assert tagged.task.crf == CRF()
    with pytest.raises(RecipeError, match="did you mean summary"):
        planned(encoder, changes={"task.sumry": "x"})


def test_texts_of_the_rows_are_read_once_and_as_text(encoder: TextEncoder):
    tags = [
        {"tokens": ["the", "red", "fox"], "tags": ["O", "O", "B-X"]},
        {"tokens": ["我", "喜", "欢"], "tags": ["O"] * 3},
    ]
    assert sorted(collect_texts(planned(encoder, "tag", tags, dev_share=0.0))) == ["the red fox", "我喜欢"]
    twice = [*rows(4), *rows(4)]
    assert len(collect_texts(planned(encoder, given=twice, dev_share=0.0))) == len({row["text"] for row in twice})


def test_so_many_of_the_rows_are_learned_from(encoder: TextEncoder):
    made = planned(encoder, given=rows(48), limit=10, dev_share=0.0)
    assert abs(len(made.train) - 10) <= 2
    assert "about 10 of 48 rows are learned from" in made.notes
    assert len(planned(encoder, given=rows(48), limit=48, dev_share=0.0).train) == 48


def test_from_python(road: Path, tmp_path: Path):
    how = {
        "epochs": 6,
        "batch_size": 8,
        "max_length": 16,
        "changes": {"train.learning_rate": "3e-3"},
        "progress": False,
    }
    seen = []
    done = cw.finetune("classify", road / "run", rows(), rows(24, 1), out=tmp_path / "run", tell=seen.append, **how)
    assert done.finished
    assert seen[0].recipe.train.steps == 36
    assert done.metrics["accuracy"] >= 0.8
    assert done.model.predict("the red fox")[0]["label"] == "warm"
    again = cw.finetune("classify", cw.load(road / "run"), rows(), rows(24, 1), out=tmp_path / "run", **how)
    assert again.metrics == done.metrics
    bare = cw.finetune("classify", road / "run", rows(), out=tmp_path / "bare", dev_share=0.0, epochs=1, progress=False)
    assert (bare.metrics, bare.rows) == ({}, {"train": 48})
    assert json.loads((tmp_path / "bare" / "recipe.json").read_text())["finetune"]["epochs"] == 1


def test_fields_of_the_encoder_are_set_and_used(road: Path, tmp_path: Path):
    how = {"epochs": 1, "max_length": 16, "dev_share": 0.0, "progress": False}
    weights = []
    for rate in ("0.0", "0.5"):
        changes = {"encoder.stack.block.dropout": rate}
        done = cw.finetune("classify", road / "run", rows(), out=tmp_path / rate, changes=changes, **how)
        assert done.model.recipe.encoder.stack.block.dropout == float(rate)
        weights.append(done.model.model.encoder.embed.words.table.weight)
    assert not weights[0].equal(weights[1])
    short = cw.finetune(
        "classify", road / "run", rows(), out=tmp_path / "short", changes={"encoder.stack.depth": "1"}, **how
    )
    assert any(
        note.startswith("left behind, since the recipe has no place for it: stack.blocks.1") for note in short.notes
    )
    with pytest.raises(InputError, match="the recipe has"):
        cw.finetune("classify", road / "run", rows(), out=tmp_path / "wide", changes={"encoder.width": "64"}, **how)
    assert not (tmp_path / "wide").exists()


def test_mistakes(road: Path, tmp_path: Path, encoder: TextEncoder):
    out = tmp_path / "run"
    for given, how, message in (
        ("clssify", {}, "did you mean classify"),
        ("classify", {"epoch": 3}, "did you mean epochs"),
        ("classify", {"epochs": 0}, "at least 1 is needed"),
        ("classify", {"features": "all"}, "last, sum, concat, mix"),
        ("classify", {"dev_share": 1.0}, "a share from 0 up to 1"),
        ("classify", {"lm_weight": 0.5}, "models that read one way"),
    ):
        with pytest.raises(InputError, match=message):
            cw.finetune(given, encoder, rows(), out=out, **how)
    with pytest.raises(InputError, match="the directory of the run is needed"):
        cw.finetune("classify", encoder, rows(), out=None)
    with pytest.raises(InputError, match="a model without a tokenizer"):
        cw.finetune("classify", TextEncoder(encoder.model, None, encoder.recipe), rows(), out=out)
    assert not out.exists()
