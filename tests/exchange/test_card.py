"""The card tells what the weights reached that are beside it."""

import json
from pathlib import Path

import clozeworks as cw
from clozeworks.exchange import files, tensors
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.recipe import build


def run_of(place: Path, step: int | None) -> Path:
    """A run of six steps that published the weights of one of them."""
    r = cw.recipe("bert_tiny")
    r.encoder.vocab = 64
    place.mkdir()
    files.write_recipe(place / files.RECIPE, r)
    tensors.write(place / tensors.FILE, tensors.state(build(r)), step)
    rows = [
        {"step": n, "loss": 1 / n, **more} for n in (2, 4, 6) for more in ({"tokens": n * 10}, {"split": "heldout"})
    ]
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def test_metrics_are_those_of_the_step_of_the_weights(tmp_path):
    facts = load(run_of(tmp_path / "run", 4)).facts
    assert facts["heldout"] == {"step": 4, "loss": 0.25}
    assert facts["training"] == {"step": 4, "tokens": 40, "loss": 0.25}
    save(load(tmp_path / "run"), tmp_path / "out", format="hf")
    assert "| step | 4 |" in (tmp_path / "out" / "README.md").read_text()


def test_weights_of_no_known_step_are_the_last(tmp_path):
    assert load(run_of(tmp_path / "run", None)).facts["heldout"]["step"] == 6


def test_a_step_of_others_is_not_believed(tmp_path):
    place = run_of(tmp_path / "run", 4)
    model: TextEncoder = load(place)
    tensors.save_file(tensors.state(model.model), place / tensors.FILE, {"step": "1e999"})
    assert tensors.read_step(place / tensors.FILE) is None
