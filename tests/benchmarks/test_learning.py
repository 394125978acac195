"""The comparison of learning: every side has the same budget and is scored alike."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks import learning

TEXT = "the a small large red blue fox dog hen cat runs sleeps sees eats near under over old tree stone"


@pytest.mark.slow
def test_every_side_trains_and_is_scored_on_the_same_predictions(tmp_path):
    pytest.importorskip("transformers")
    words, draw = TEXT.split(), np.random.default_rng(0)
    documents = [". ".join(" ".join(draw.choice(words, 8)) for _ in range(6)) + "." for _ in range(200)]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    setting = learning.Setting(
        recipe="cloze_tiny",
        vocab=80,
        data=str(tmp_path / "text.jsonl"),
        repetitions=1,
        cpu_seconds=8.0,
        cells=("ours",),
        keep=str(tmp_path / "kept.jsonl"),
    )
    first = learning.run(setting)
    assert first["sides"]["ours"]["cpu_seconds"] > first["workload"]["table_seconds"] > 0
    results = learning.run(dataclasses.replace(setting, cells=()))
    assert results["seeds"]["ours"] == first["seeds"]["ours"]
    assert len((tmp_path / "kept.jsonl").read_text().splitlines()) == 3
    runs = {side: each[0] for side, each in results["seeds"].items()}
    assert set(runs) == {"ours", "trainer", "begun"}
    assert len({run["count"] for run in runs.values()}) == 1
    assert all(run["steps"] >= 1 and run["masked_lm"] < 6 for run in runs.values())
    assert runs["trainer"]["masked_lm"] != runs["begun"]["masked_lm"]
    assert learning.render(results) is not None
