"""The comparison of quality: equal work for both sides, and a verdict that says no more than the seeds do."""

import json

import numpy as np
import pytest

from benchmarks import quality
from benchmarks.quality_sides import grouped

TEXT = "the a small large red blue fox dog hen cat runs sleeps sees eats near under over old tree stone"


def row(loss: float) -> dict:
    return {"loss": loss, "accuracy": 0.1, "steps": 10, "tokens": 1000, "predicted": 150, "seconds": 1.0}


@pytest.mark.parametrize(
    ("ours", "verdict"), [((3.0, 3.1, 3.2), "equal"), ((2.5, 2.6, 2.7), "better"), ((3.5, 3.6, 3.7), "worse")]
)
def test_the_verdict_needs_more_than_a_seed_would_change(ours, verdict):
    results = quality.summary({"ours": [*map(row, ours)], "theirs": [row(3.05), row(3.1), row(3.2)]})
    assert results["verdict"] == verdict
    assert results["spread"] == pytest.approx(0.2)
    assert results["difference"] == pytest.approx(np.mean(ours) - 3.35 / 3 - 2, abs=1e-4)


def test_batches_of_the_peer_hold_our_tokens_of_like_length_in_random_order():
    lengths = np.random.default_rng(0).integers(4, 100, 3000)
    epoch = -(-int(lengths.sum()) // 1000)
    batches = grouped(lengths, 1000, epoch, seed=1)
    tokens = [int(lengths[batch].sum()) for batch in batches]
    assert np.mean(tokens) == pytest.approx(1000, rel=0.01)
    assert max(tokens) < 1100
    assert sorted(index for batch in batches for index in batch) == list(range(3000))
    assert np.mean([np.ptp(lengths[batch]) for batch in batches]) < 3
    means = [lengths[batch].mean() for batch in batches]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.4
    assert len(grouped(lengths, 1000, 2 * epoch + 3, seed=1)) == 2 * epoch + 3
    assert batches == grouped(lengths, 1000, epoch, seed=1) != grouped(lengths, 1000, epoch, seed=2)


@pytest.mark.slow
def test_both_sides_learn_the_same_from_the_same_tokens(tmp_path):
    pytest.importorskip("transformers")
    words = TEXT.split()
    draw = np.random.default_rng(0)
    documents = [". ".join(" ".join(draw.choice(words, 8)) for _ in range(6)) + "." for _ in range(200)]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    small = quality.Setting(
        recipe="bert_tiny",
        data=str(tmp_path / "text.jsonl"),
        vocab=200,
        repetitions=1,
        steps=20,
        batch_tokens=256,
        threads=1,
    )
    results = json.loads(json.dumps(quality.run(small), allow_nan=False))
    ours, theirs = results["seeds"]["ours"][0], results["seeds"]["theirs"][0]
    assert ours["tokens"] == pytest.approx(theirs["tokens"], rel=0.06)
    assert ours["predictions"] == theirs["predictions"] == results["workload"]["heldout_predictions"]
    assert ours["loss"] == pytest.approx(theirs["loss"], abs=0.3)
    assert max(ours["loss"], theirs["loss"]) < results["workload"]["loss_of_fresh_weights"] - 0.3
    assert quality.render(results)
