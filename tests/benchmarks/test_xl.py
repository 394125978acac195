"""A window against a memory: the ratio is taken repetition by repetition, between models that differ in that alone."""

import itertools
import json

import pytest
import torch

from benchmarks import xl
from clozeworks.core.errors import InputError
from clozeworks.recipe import count_parameters

SMALL = xl.Setting(lengths=(8,), peer=(8,), width=16, depth=2, heads=2, repetitions=2, seconds=0.01, threads=1)


def row(seconds: float, cpu: float, tokens: int) -> dict:
    return {"tokens": tokens, "seconds": seconds, "cpu_seconds": cpu, "peak_mb": 100.0}


def test_the_ratio_is_of_seconds_a_token_within_a_repetition():
    segments = {
        "window": [row(4.0, 8.0, 10), row(6.0, 6.0, 10)],
        "memory": [row(1.0, 1.0, 100), row(1.0, 1.0, 100)],
        "peer": [row(8.0, 8.0, 10), row(6.0, 6.0, 10)],
    }
    result = xl.summary(segments)
    assert result["ratio"] == {"median": 50.0, "lowest": 40.0, "highest": 60.0}
    assert result["cpu_ratio"] == {"median": 70.0, "lowest": 60.0, "highest": 80.0}
    assert result["peer_ratio"] == {"median": 1.5, "lowest": 1.0, "highest": 2.0}
    assert result["us_a_token"]["memory"]["median"] == 10_000.0
    del segments["peer"]
    assert "peer_ratio" not in xl.summary(segments)


def test_the_sides_have_one_shape_and_one_length():
    setting = xl.Setting()
    window, memory = (xl.recipe_of(setting, 512, remembers) for remembers in (False, True))
    assert (window.encoder.stack.memory, memory.encoder.stack.memory) == (0, 512)
    d, depth = setting.width, setting.depth
    distances = depth * d * d + 2 * d  # W_r of each layer, one u and one v
    assert count_parameters(memory) - count_parameters(window) == distances - 512 * d


@pytest.mark.parametrize("side", ["window", "memory"])
def test_each_side_tells_as_many_tokens_as_it_takes_at_once(side):
    text = torch.randint(256, (60,))
    steps = xl.SIDES[side](SMALL, text, 8, 4)
    assert list(itertools.islice(steps, 40)) == [4] * 40, "and continues when the text has ended"


def test_long_windows_are_read_one_at_a_time():
    assert xl.candidates("window", 3800) == [1, 2]
    assert xl.candidates("window", 64) == [32, 128]
    assert xl.candidates("memory", 64) == [64, 128, 256]
    assert xl.candidates("memory", 3800) == [64, 128, 256, 512]


def test_it_is_drawn_and_reported(tmp_path):
    segments = {"window": [row(4.0, 8.0, 10)], "memory": [row(1.0, 1.0, 100)]}
    results = {"64": {**xl.summary(segments), "at_once": {"window": 32, "memory": 64}}}
    xl.draw(results, str(tmp_path / "xl.svg"))
    assert "<svg" in (tmp_path / "xl.svg").read_text()
    machine = {"threads": 1, "processor": "x", "cores": 2, "load_average": [0.0]}
    shape = {"depth": 2, "width": 16, "heads": 2, "vocabulary": 256}
    assert xl.render({"shape": shape, "repetitions": 1, "lengths": results, "machine": machine, "versions": {}})
    with pytest.raises(InputError, match="the ending chooses the format"):
        xl.run(xl.Setting(plot="xl.gif"))


@pytest.mark.slow
def test_the_whole_of_it():
    results = json.loads(json.dumps(xl.run(SMALL), allow_nan=False))
    result = results["lengths"]["8"]
    assert result["ratio"]["median"] > 0
    assert set(result["at_once"]) >= {"window", "memory"}
    assert xl.render(results)
