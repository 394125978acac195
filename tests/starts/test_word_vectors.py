"""Tables of words that begin as vectors: exactly theirs, the same bits where frozen, refused where they do not fit."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from clozeworks.cli.main import main
from clozeworks.core.errors import InputError
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.text_encoder import load
from clozeworks.recipe import build
from clozeworks.starts.word_vectors import begin_words, describe_start, match_words
from clozeworks.train.pretrain import pretrain
from clozeworks.vectors.table import Vectors
from tests.command_line import refused
from tests.labelled import rows, write
from tests.train.conftest import TEXT, documents, tiny_recipe

KNOWN = [word for word in TEXT.split() if word not in ("fox", "stone")]


def made(dim: int = 32, words: list[str] = KNOWN, seed: int = 0) -> Vectors:
    return Vectors(words, np.random.default_rng(seed).normal(0.1, 0.5, (len(words), dim)).astype(np.float32))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("words") / "data"
    prepare(documents(120, 1), out, tokenizer="words", vocab=100, heldout=0.1)
    return out


def table(place: Path) -> np.ndarray:
    return load(place).model.encoder.embed.words.table.weight.detach().numpy()


def ids(place: Path, words: list[str]) -> list[int]:
    vocabulary = Tokenizer.load(place).inner.get_vocab()
    return [vocabulary[word] for word in words]


@pytest.mark.parametrize("frozen", [True, False])
def test_rows_are_the_vectors_and_frozen_ones_stay(data, tmp_path, frozen):
    recipe, vectors = tiny_recipe(6), made()
    recipe.encoder.embed.frozen = frozen
    done = pretrain(recipe, [(data, 1.0)], tmp_path / "run", progress=False, words=vectors)
    assert any(note.startswith(f"{len(KNOWN)} of ") for note in done.notes)
    learned, places = table(tmp_path / "run"), ids(data, KNOWN)
    assert (learned[places].tobytes() == vectors.table.tobytes()) is frozen
    assert load(tmp_path / "run").recipe.encoder.embed.frozen is frozen
    assert np.abs(learned[places] - vectors.table).max() < 0.05  # a few steps from where they began


def test_a_run_continues_with_the_same_vectors_only(data, tmp_path):
    recipe = tiny_recipe(8)
    recipe.encoder.embed.frozen = True
    whole = pretrain(recipe, [(data, 1.0)], tmp_path / "whole", progress=False, words=made())
    shutil.copytree(tmp_path / "whole", tmp_path / "part")
    shutil.rmtree(tmp_path / "part" / "step-00000008")
    with pytest.raises(InputError, match="begun from other weights"):
        pretrain(recipe, [(data, 1.0)], tmp_path / "part", progress=False, words=made(seed=1))
    again = pretrain(recipe, [(data, 1.0)], tmp_path / "part", progress=False, words=made())
    assert again.resumed == 5
    assert whole.step == again.step == 8
    assert table(tmp_path / "whole").tobytes() == table(tmp_path / "part").tobytes()
    assert describe_start(None, made()) != describe_start(None, made(seed=1))


def test_the_others_begin_with_the_same_spread(data):
    tokenizer = Tokenizer.load(data)
    recipe = tiny_recipe()
    recipe.encoder.vocab = tokenizer.size
    one, again, other = (build(recipe) for _ in range(3))
    wide = made(32, [*KNOWN, *(f"w{k}" for k in range(5))])
    started = begin_words(one, tokenizer, wide, 0)
    begin_words(again, tokenizer, wide, 0)
    begin_words(other, tokenizer, wide, 1)
    weights = [model.encoder.embed.words.table.weight.detach() for model in (one, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    known = np.isin(np.arange(tokenizer.size), ids(data, KNOWN))
    rest = weights[0][~known]
    assert float(rest.std()) == pytest.approx(float(weights[0][known].std()), rel=0.1)
    assert float(rest.mean()) == pytest.approx(float(weights[0][known].mean()), abs=0.1)
    plain = tokenizer.size - len(tokenizer.special_ids)
    assert started == [
        f"{len(KNOWN)} of {plain} tokens begin as vectors ({len(KNOWN) / plain:.1%}), the others by chance"
    ]


def test_capitals_and_accents_are_those_of_the_tokenizer(data):
    tokenizer = Tokenizer.load(data)
    vectors = made(4, ["Fox", "FOX", "dog", "Dog", "trée", "[CLS]", "Unheard"])
    places = match_words(tokenizer, vectors)
    assert places[tokenizer.id("fox")] == 0
    assert places[tokenizer.id("dog")] == 2
    assert places[tokenizer.id("tree")] == 4
    assert places[tokenizer.cls] == -1
    assert (places >= 0).sum() == 3


def test_narrow_tables_take_narrow_vectors(data, tmp_path):
    recipe = tiny_recipe(2)
    recipe.encoder.embed.width = 8
    recipe.encoder.embed.frozen = True
    pretrain(recipe, [(data, 1.0)], tmp_path / "run", progress=False, words=made(8))
    assert table(tmp_path / "run")[ids(data, KNOWN)].tobytes() == made(8).table.tobytes()


def test_what_does_not_fit_is_refused_before_anything_is_written(data, tmp_path):
    for vectors, message in [
        (made(8), "vectors of 8 numbers; the recipe's table of words has 32; .*encoder.embed.width=8"),
        (made(32, ["Unheard"]), "none of its words is a token"),
    ]:
        with pytest.raises(InputError, match=message):
            pretrain(tiny_recipe(2), [(data, 1.0)], tmp_path / "run", progress=False, words=vectors)
    assert not (tmp_path / "run").exists()
    recipe = tiny_recipe()
    recipe.encoder.vocab = Tokenizer.load(data).size
    model = build(recipe)
    model.encoder.embed.words = torch.nn.Identity()
    with pytest.raises(InputError, match="one table of words is needed"):
        begin_words(model, Tokenizer.load(data), made(), 0)


@pytest.mark.usefixtures("one_thread")
def test_on_the_command_line(data, tmp_path, capsys):
    made(128).save(tmp_path / "words.txt")
    small = ["--set", "train.steps=2", "--set", "train.batch_tokens=256", "--set", "objective.segments.length=32"]
    run, begin = str(tmp_path / "run"), ["--word-vectors", str(tmp_path / "words.txt"), "--freeze-word-vectors"]
    assert main(["pretrain", "bert_tiny", "--data", str(data), "--out", run, *small, *begin, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert any("tokens begin as vectors" in note for note in report["notes"])
    assert table(tmp_path / "run")[ids(data, KNOWN)].tobytes() == made(128).table.tobytes()

    file = write(tmp_path / "rows.jsonl", rows(24))
    tune = ["finetune", "classify", "--model", run, "--train", str(file), "--epochs", "1", "--batch-size", "8"]
    assert main([*tune, "--out", str(tmp_path / "task"), "--from-scratch", *begin, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert any("tokens begin as vectors" in note for note in report["notes"])
    assert table(tmp_path / "task")[ids(data, KNOWN)].tobytes() == made(128).table.tobytes()

    assert "add --from-scratch" in refused(capsys, *tune, "--out", "x", *begin)
    assert "no --word-vectors" in refused(capsys, *tune, "--out", "x", "--from-scratch", "--freeze-word-vectors")
    asked = ["pretrain", "bert_tiny", "--data", data, "--out", "x"]
    assert "no --word-vectors" in refused(capsys, *asked, "--freeze-word-vectors")
    assert "together with --from" in refused(capsys, *asked, "--from", run, *begin)
    assert "no such path" in refused(capsys, *asked, "--word-vectors", "nowhere.txt")
    made(8).save(tmp_path / "words.txt")
    assert "has 128; train vectors with --dim 128" in refused(capsys, *asked, *small, *begin)
