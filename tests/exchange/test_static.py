"""An encoder as a table of token vectors: the formula, the model that it makes, and Model2Vec's files."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import tokenizers
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.static.table import SMOOTHING, project, weigh
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.pooling import Pooling
from clozeworks.recipe import build
from tests.command_line import facts

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = "the river runs fast and a stone falls into cold water near an old mill"
TEXTS = ["the river", "a stone falls into cold water near an old mill and the river runs fast", "cold", ""]


def small(family: str = "bert_tiny", **pooling: object) -> TextEncoder:
    tokenizer = Tokenizer.train([WORDS], vocab=90)
    recipe = cw.recipe(family)
    recipe.encoder.vocab, recipe.encoder.init = tokenizer.size, 0.1
    recipe.pooling = Pooling(**pooling) if pooling else None  # pyright: ignore[reportArgumentType]
    return TextEncoder(build(recipe).eval(), tokenizer, recipe)


def spoken(encoder: TextEncoder) -> list[int]:
    return [index for index in range(encoder.tokenizer.size) if index not in encoder.tokenizer.special_ids]


def test_the_table_is_the_formula(tmp_path: Path):
    encoder = small()
    save(encoder, tmp_path / "static", format="static", dimensions=8)
    table = load(tmp_path / "static").model.encoder.embed.words.table.weight.detach().numpy()
    ids = spoken(encoder)
    rows = torch.tensor([[encoder.tokenizer.cls, index, encoder.tokenizer.sep] for index in ids])
    alone = encoder.forward(rows, logits=False).last_hidden_state.mean(1).numpy()
    centred = alone - alone.mean(0)
    left, sizes, _ = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    chance = 1 / np.arange(2, len(ids) + 2)
    wanted = (left * sizes)[:, :8] * (SMOOTHING / (SMOOTHING + chance / chance.sum()))[:, None]
    signs = np.sign((wanted * table[ids]).sum(0))
    np.testing.assert_allclose(table[ids], wanted * signs, atol=1e-5)
    assert not table[list(encoder.tokenizer.special_ids)].any()


def test_all_components_keep_distances():
    vectors = np.random.default_rng(1).normal(size=(40, 6))
    same = project(vectors, 256)
    assert same.shape == (40, 6)
    apart = np.linalg.norm(vectors[:, None] - vectors, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(same[:, None] - same, axis=-1), apart, atol=1e-9)
    np.testing.assert_array_equal(project(vectors, 3), same[:, :3])


def test_frequent_tokens_weigh_less():
    weights = weigh(1000)
    assert (np.diff(weights) > 0).all()
    assert 0 < weights[0] < weights[-1] < 1


@pytest.mark.parametrize(
    ("family", "pooling"),
    [("roberta_mini", {}), ("cloze_tiny", {"mode": "first"}), ("gpt_mini", {}), ("xlnet_mini", {})],
)
def test_every_family_becomes_an_ordinary_model(family: str, pooling: dict[str, str], tmp_path: Path):
    encoder = small(family, **pooling)
    save(encoder, tmp_path / "static", format="static", dimensions=5)
    static = load(tmp_path / "static")
    vectors = static.encode(TEXTS)
    assert vectors.shape == (4, 5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 0], atol=1e-6)
    shuffled = static.encode(["mill old an near river the"])
    np.testing.assert_allclose(shuffled, static.encode(["the river near an old mill"]), atol=1e-6)
    save(static, tmp_path / "again")
    np.testing.assert_array_equal(load(tmp_path / "again").encode(TEXTS), vectors)


def test_what_model2vec_computes_of_its_files_is_the_same(tmp_path: Path):
    encoder = small()
    save(encoder, tmp_path / "m2v", format="model2vec", dimensions=8)
    save(encoder, tmp_path / "own", format="static", dimensions=8)
    table = safetensors.numpy.load_file(tmp_path / "m2v" / "model.safetensors")["embeddings"]
    reader = tokenizers.Tokenizer.from_file(str(tmp_path / "m2v" / "tokenizer.json"))
    assert json.loads((tmp_path / "m2v" / "config.json").read_text())["normalize"] is True
    wanted = []
    for text in TEXTS[:3]:
        mean = table[reader.encode(text, add_special_tokens=False).ids].mean(0)
        wanted.append(mean / np.linalg.norm(mean))
    np.testing.assert_allclose(load(tmp_path / "own").encode(TEXTS[:3]), wanted, atol=1e-6)


def test_it_learns_and_is_measured_like_others(tmp_path: Path, capsys):
    save(small(), tmp_path / "static", format="static", dimensions=8)
    words = WORDS.split()
    pairs = [{"text_a": f"the {word}", "text_b": f"a {word}", "score": float(at % 5)} for at, word in enumerate(words)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    given = ["--train", tmp_path / "pairs.jsonl", "--dev", tmp_path / "pairs.jsonl", "--epochs", "1"]
    report = facts(capsys, "finetune", "embed", "--model", tmp_path / "static", *given, "--out", tmp_path / "run")
    assert "spearman" in json.dumps(report)
    report = facts(capsys, "evaluate", tmp_path / "run", "--test", tmp_path / "pairs.jsonl")
    assert -1 <= report["spearman"] <= 1
    moved = load(tmp_path / "run").encode(TEXTS) - load(tmp_path / "static").encode(TEXTS)
    assert np.abs(moved[:3]).max() > 0


def test_what_is_no_table_is_refused(tmp_path: Path):
    encoder = small()
    for change, match in (
        ({"tokenizer": None}, "no tokenizer; token vectors are of its tokens"),
        ({"recipe": dataclasses.replace(cw.recipe("transformer_mini"), name="writer")}, r"writer\.decoder"),
    ):
        with pytest.raises((InputError, RecipeError), match=match):
            save(dataclasses.replace(encoder, **change), tmp_path / "no", format="static")
    with pytest.raises(InputError, match="dimensions: 9; it is for static and model2vec, and the format is hf"):
        save(encoder, tmp_path / "no", format="hf", dimensions=9)
    with pytest.raises(InputError, match="-3 dimensions of"):
        save(encoder, tmp_path / "no", format="static", dimensions=-3)
    assert not (tmp_path / "no").exists()
