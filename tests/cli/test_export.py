"""What `export` offers next is what the directory can do."""

from pathlib import Path

import pytest

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.text_encoder import TextEncoder, save
from clozeworks.recipe import Recipe, build
from clozeworks.tasks.classify import Classify


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["red foxes run"] * 9, "wordpiece", 64)


def export(recipe: Recipe, tokenizer: Tokenizer, place: Path, to: str = "hf") -> None:
    recipe.encoder.vocab = tokenizer.size
    save(TextEncoder(build(recipe).eval(), tokenizer, recipe), place / "model")
    assert main(["export", str(place / "model"), "--to", to, "--out", str(place / "out")]) == 0


def test_a_model_of_other_sizes_is_trained_further_by_its_own_recipe(tokenizer, tmp_path, capsys):
    r = cw.recipe("bert_tiny")
    r.encoder.width = 64
    export(r, tokenizer, tmp_path)
    output = capsys.readouterr().out
    assert f"pretrain {tmp_path}/model --from {tmp_path}/out" in output
    assert "pretrain bert_tiny" not in output


def test_a_task_is_not_pretrained(tokenizer, tmp_path, capsys):
    r = cw.recipe("bert_tiny")
    r.objective.losses = (Classify(labels=("a", "b")),)
    export(r, tokenizer, tmp_path)
    output = capsys.readouterr().out
    assert f"predict {tmp_path}/out" in output
    assert "clozeworks pretrain" not in output


def test_a_model_that_reads_both_ways_writes_nothing(tokenizer, tmp_path, capsys):
    export(cw.recipe("elmo_mini"), tokenizer, tmp_path, "clozeworks")
    output = capsys.readouterr().out
    assert "finetune tag" in output
    assert "generate" not in output


def test_sentence_embeddings_are_made(tokenizer, tmp_path, capsys):
    export(cw.recipe("bert_tiny"), tokenizer, tmp_path, "sentence-transformers")
    output = capsys.readouterr().out
    assert f"encode {tmp_path}/out" in output
    assert "fill-mask" not in output
