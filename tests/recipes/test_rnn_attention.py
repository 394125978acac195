"""Recurrent encoders and decoders on the road of the Transformer: pairs, training, scores, translations, alignments."""

import json
from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.recipe import count_parameters
from clozeworks.recipes import recipe
from tests.command_line import facts, refused
from tests.pairs import pairs, settings, write_json

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = ("rnn_attention_mini", "rnn_fixed_mini", "rnn_luong_mini")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("pairs")
    write_json(folder / "pairs.jsonl", pairs(500))
    write_json(folder / "test.jsonl", pairs(30, seed=1))
    prepare = ["prepare", f"{folder}/pairs.jsonl", "--pairs", "en,de", "--out", f"{folder}/data"]
    assert main([*prepare, "--vocab", "64", "--tokenizer", "words", "--heldout", "0.1"]) == 0
    return folder


def trained(data: Path, name: str, steps: int) -> Path:
    command = ["pretrain", name, "--data", f"{data}/data", "--out", f"{data}/{name}"]
    assert main([*command, *settings(train_steps=steps, train_learning_rate=0.01)]) == 0
    return data / name


@pytest.fixture(scope="module")
def attending(data: Path) -> Path:
    return trained(data, "rnn_attention_mini", 100)


@pytest.mark.slow
def test_it_translates_and_is_scored_as_others_are(data: Path, attending: Path, capsys: pytest.CaptureFixture[str]):
    report = facts(capsys, "evaluate", attending, "--test", data / "test.jsonl", "--pairs", "en,de")
    assert report["bleu"] > 60
    report = facts(capsys, "translate", attending, "the red fox runs.", "a cat.")
    assert [one["text"] for one in report["translations"]] == ["das rot fuchs rennt!", "ein katze!"]
    greedy = facts(capsys, "translate", attending, "the red fox runs.", "--beams", "1")
    assert greedy["translations"][0]["text"] == "das rot fuchs rennt!"


def test_where_it_looked_is_drawn_and_reported(attending: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    picture = tmp_path / "alignment.svg"
    report = facts(capsys, "translate", attending, "the red fox runs.", "--alignment", picture)
    looked = report["translations"][0]["alignment"]
    assert looked["source"] == ["the", "red", "fox", "runs", ".", "[SEP]"]
    assert looked["target"] == ["das", "rot", "fuchs", "rennt", "!", "[SEP]"]
    weights = torch.tensor(looked["weights"])
    torch.testing.assert_close(weights.sum(-1), torch.ones(6), atol=1e-3, rtol=0)
    assert weights.shape == (6, 6)
    assert "<svg" in picture.read_text()
    assert main(["translate", str(attending), "the red fox runs.", "--alignment", str(picture)]) == 0
    assert f"wrote  {picture}" in capsys.readouterr().out


def test_what_cannot_be_drawn_is_reported(data: Path, attending: Path, capsys: pytest.CaptureFixture[str]):
    assert "one text is drawn" in refused(capsys, "translate", attending, "a cat.", "a dog.", "--alignment", "x.svg")
    assert "the ending chooses the format" in refused(capsys, "translate", attending, "a cat.", "--alignment", "x.txt")
    fixed = trained(data, "rnn_fixed_mini", 2)
    assert "it reads the source as one vector" in refused(capsys, "translate", fixed, "a cat.", "--alignment", "x.svg")


def test_attention_of_the_transformer_is_drawn_by_the_same_words(data: Path):
    encoder = cw.load(trained(data, "transformer_mini", 2))
    result = encoder.translations("a small dog.")[0]
    looked = encoder.alignment(result)
    assert len(looked.weights) == len(result.tokens)
    assert all(len(row) == len(looked.source) == 5 for row in looked.weights)
    assert sum(looked.weights[0]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_it_writes_the_same(name: str, tmp_path: Path):
    r = recipe(name)
    r.encoder.width, r.encoder.vocab = 32, 50
    model = cw.build(r)
    cw.save(TextEncoder(model, None, r), tmp_path / "model")
    again = cw.load(tmp_path / "model")
    assert again.recipe == r
    pairs = zip(model.state_dict().items(), again.model.state_dict().items(), strict=True)
    assert all(left == right and torch.equal(a, b) for (left, a), (right, b) in pairs)
    assert (
        json.loads((tmp_path / "model" / "recipe.json").read_text())["decoder"]["stack"]["block"]["residual"] is False
    )


def test_attention_costs_its_score_alone():
    """The same parts but for W_q, b, W_k and v of the perceptron."""
    with_it, without = (count_parameters(recipe(name)) for name in NAMES[:2])
    assert with_it - without == 2 * 256 * 256 + 256 + 256
