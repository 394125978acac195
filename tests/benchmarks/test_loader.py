"""What a run says of its waiting is added up rightly; the figures are nobody's test."""

import json

import pytest

from benchmarks import loader


def test_waiting_is_weighed_by_time_and_the_first_step_stands_apart():
    rows = [
        {"step": 1, "tokens": 100, "tokens_per_second": 50.0, "data_wait_share": 0.5},
        {"step": 5, "tokens": 500, "tokens_per_second": 100.0, "data_wait_share": 0.01},
        {"step": 10, "tokens": 1000, "tokens_per_second": 50.0, "data_wait_share": 0.03},
    ]
    result = loader.measure_waiting(rows)
    assert result["steps"] == 9
    assert result["seconds"] == pytest.approx(4 + 10)
    assert result["waited"] == pytest.approx(0.04 + 0.3)
    assert result["first_step_waited"] == pytest.approx(1.0)
    assert result["highest_share"] == 0.03


def test_the_loader_is_compared_with_the_steps_of_its_own_run():
    row = {"steps": 10, "seconds": 5.0, "waited": 0.1, "first_step_waited": 0.02, "highest_share": 0.04,
           "batches": 100, "loader_seconds": 0.5, "loader_cpu_seconds": 0.4}  # fmt: skip
    result = loader.summary([row, row | {"seconds": 10.0}, row | {"loader_seconds": 1.0}])
    assert result["ratio"] == {"median": 100.0, "lowest": 50.0, "highest": 200.0}
    assert result["data_wait_share"] == {"median": 0.02, "lowest": 0.01, "highest": 0.02}
    assert result["steps_per_second"] == 2.0
    assert result["loader_cpu_ms_a_batch"] == 4.0


@pytest.mark.slow
def test_the_whole_of_it():
    small = loader.Setting(
        recipes=("bert_tiny",), vocab=1000, documents=40, repetitions=2, steps=6, batches=5, threads=1
    )
    results = json.loads(json.dumps(loader.run(small), allow_nan=False))
    of_recipe = results["recipes"]["bert_tiny"]
    assert 0 <= of_recipe["data_wait_share"]["median"] < 1
    assert [row["steps"] for row in results["segments"]["bert_tiny"]] == [5, 5]
    assert [row["batches"] for row in results["segments"]["bert_tiny"]] == [5, 5]
    assert loader.render(results)
