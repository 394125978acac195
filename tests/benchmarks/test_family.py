"""The ratio is the first side's time by the others' together, repetition by repetition."""

import json

import pytest

from benchmarks import family
from clozeworks.nn.stack import Share


def row(seconds: float, cpu: float) -> dict:
    return {"steps": 4, "seconds": seconds, "cpu_seconds": cpu, "peak_mb": 100.0}


def test_the_ratio_is_taken_within_a_repetition():
    segments = {"shared": [row(4.0, 8.0), row(6.0, 6.0)], "own": [row(5.0, 8.0), row(6.0, 12.0)]}
    summary = family.summary(segments)
    assert summary["ratio"] == {"median": 0.9, "lowest": 0.8, "highest": 1.0}
    assert summary["cpu_ratio"] == {"median": 0.75, "lowest": 0.5, "highest": 1.0}
    assert summary["ms_a_step"]["shared"] == {"median": 1250.0, "lowest": 1000.0, "highest": 1500.0}
    three = family.summary({"taught": [row(9.0, 9.0)], "student": [row(6.0, 6.0)], "teacher": [row(2.0, 3.0)]})
    assert three["ratio"]["median"] == 1.125
    assert three["cpu_ratio"]["median"] == 1.0


def test_the_sides_differ_in_sharing_alone():
    setting = family.Setting()
    shared, own = (family.recipe_of(setting, share()) for share in family.SHARES.values())
    assert shared.encoder.stack.share == Share(1, 1)
    shared.encoder.stack.share = Share()
    assert shared == own
    counts = family.parameters(setting, "sharing")
    layer = 4 * (256 * 256 + 256) + 2 * 256 * 1024 + 1024 + 256 + 4 * 256
    assert counts["own"] - counts["shared"] == (setting.depth - 1) * layer


@pytest.mark.slow
def test_the_whole_of_it():
    small = family.Setting(
        recipe="bert_tiny", depth=4, batch_tokens=256, vocab=1000, documents=40, repetitions=2, steps=2, threads=1
    )
    results = json.loads(json.dumps(family.run(small), allow_nan=False))
    ratios = {name: result["ratio"]["median"] for name, result in results["comparisons"].items()}
    assert set(ratios) == {"sharing", "distillation", "teaching"}
    assert all(0.2 < ratio < 5 for ratio in ratios.values())
    assert ratios["teaching"] > ratios["distillation"], "a teacher is not free"
    assert family.render(results)
