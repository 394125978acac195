"""Both paths are measured on the rows they are asked about, and a border chooses between them."""

import pytest
import torch

from clozeworks.core.cache import KVCache
from clozeworks.core.dropout import DropoutKey
from clozeworks.machine import trials, window_crossover
from clozeworks.nn.kernels import backends, windowed
from clozeworks.nn.window import Window
from tests.toys import packed


def test_both_paths_are_measured_at_every_length(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[int, str]] = []
    monkeypatch.setattr(window_crossover, "run", lambda beyond, path: asked.append((beyond, path)) or len(asked))
    times = trials._try_window(torch.get_num_threads())["ms"]
    assert asked[:10] == asked[10:20]  # once to warm up, once for the clock
    assert [beyond for beyond, _ in asked[:10:2]] == [0, 64, 128, 256, 512]
    assert times["0"] == {"pieces": 11000, "mask": 12000}
    assert times["512"] == {"pieces": 19000, "mask": 20000}


@pytest.mark.parametrize(("path", "other"), [("pieces", "masked"), ("mask", "windowed")])
def test_a_pass_goes_by_its_path(path: str, other: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(window_crossover if other == "masked" else windowed, other, None)
    assert window_crossover.run(10, path) > 0


@pytest.mark.parametrize(("given", "fast"), [("", False), ("40", True), ("60", False), ("-3", False), ("far", False)])
def test_the_border_of_the_environment_counts_without_a_key_alone(given, fast, monkeypatch: pytest.MonkeyPatch):
    """Rows of 64 + 2 x 3 + 50 tokens."""
    monkeypatch.setenv(windowed.BORDER, given)
    context, window = packed([[120]], 120), Window(3)
    assert windowed.fits(context, window) == fast
    assert not windowed.fits(context.replace(key=DropoutKey.make(1)), window)
    assert not windowed.fits(context, window, biased=True)


def test_a_border_changes_no_number_but_by_rounding(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 100, 8, dtype=torch.float64).unbind(0)
    context, results = packed([[100], [30, 60]], 100), []
    for given in ("0", "1000"):
        monkeypatch.setenv(windowed.BORDER, given)
        results.append(backends.attend(q, KVCache(k, v), context.replace(scratch={}), window=Window(3)))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


def test_what_is_dropped_does_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 3, 100, 8).unbind(0)
    results = []
    for given in ("0", "1000"):
        monkeypatch.setenv(windowed.BORDER, given)
        context = packed([[100]], 100, key=DropoutKey.make(1))
        results.append(backends.attend(q, KVCache(k, v), context, rate=0.3, window=Window(3)))
    assert torch.equal(*results)
