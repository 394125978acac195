"""What length costs: slopes and ratios by hand, sides of one shape, and a run of all of them on short rows."""

import io
import json
import math
from dataclasses import replace

import pytest
import torch

from benchmarks import long, long_report, long_sides
from clozeworks.nn.kernels.windowed import BORDER
from clozeworks.nn.mixer import MixerLayer

SMALL = long.Setting(
    lengths=(32, 64), full=32, depths=(2, 4), width=16, depth=2, heads=2, window=4, vocab=50, repetitions=2,
    seconds=0.001, threads=1,
)  # fmt: skip


def row(seconds: float, cpu: float, peak: float) -> dict:
    return {"steps": 2, "seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak, "base_mb": 100.0}


def test_ratios_are_of_one_repetition_and_memory_is_above_the_idle_process():
    result = long.summary(
        {
            "window": [row(2.0, 4.0, 150.0), row(4.0, 4.0, 140.0)],
            "longformer": [row(6.0, 8.0, 300.0), row(8.0, 12.0, 310.0)],
        }
    )
    assert result["seconds"]["window"] == {"median": 1.5, "lowest": 1.0, "highest": 2.0}
    assert result["ratio"] == {"longformer": {"median": 2.5, "lowest": 2.0, "highest": 3.0}}
    assert result["cpu_ratio"]["longformer"]["median"] == 2.5
    assert result["mb"] == {"window": 50.0, "longformer": 210.0}
    assert result["mb_ratio"] == {"longformer": 4.2}


@pytest.mark.parametrize("power", [1.0, 1.3, 2.0])
def test_the_slope_is_the_exponent(power):
    points = [(math.log(n), math.log(3 * n**power)) for n in (512, 1024, 4096)]
    assert long.slope(points) == pytest.approx(power)
    rows = {
        str(n): {mode: {"seconds": {"window": {"median": 0.001 * n**power}}} for mode in long.MODES} for n in (64, 512)
    }
    assert long.fit_slopes(rows) == {mode: {"window": power} for mode in long.MODES}


@pytest.mark.parametrize("side", long.SIDES)
def test_every_side_reads_a_row_and_goes_back_through_it(side):
    pytest.importorskip("transformers")
    read = long.SIDES[side](SMALL, 32)
    out = read(torch.randint(50, (1, 32)))
    assert out.shape[:2] == (1, 32)
    out.backward(torch.ones_like(out))


def test_ours_with_a_window_is_as_large_as_the_peer_class():
    transformers = pytest.importorskip("transformers")
    mine = sum(parameter.numel() for parameter in long_sides.ours(SMALL, 32, "window").parameters())
    config = transformers.LongformerConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=34,
        vocab_size=50, type_vocab_size=1, attention_window=8,
    )  # fmt: skip
    peer = transformers.LongformerModel(config, add_pooling_layer=False)
    assert mine == sum(parameter.numel() for parameter in peer.parameters()) - 2 * 16  # its two positions without use


def test_reversible_layers_keep_as_much_at_any_depth():
    result = long_sides.count_saved_bytes(SMALL, 32)
    assert result["lsh"]["2"] == result["lsh"]["4"]
    assert result["window"]["4"] > 1.5 * result["window"]["2"]


def test_a_side_answers_line_by_line(tmp_path, monkeypatch):
    SMALL.write(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("1 forward\n2 both\n"))
    answers = io.StringIO()
    long.serve(tmp_path, answers, "window", "32")
    first, second = (json.loads(line) for line in answers.getvalue().splitlines())
    assert (first["steps"], second["steps"]) == (1, 2)
    assert second["seconds"] > 0
    assert (first["path"], second["path"]) == ("mask", "mask")


@pytest.mark.parametrize("side", ["window", "longformer", "lsh", "reformer"])
def test_a_rate_drops_on_every_side_and_only_while_it_learns(side):
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    tokens = torch.randint(50, (1, 32))
    read = long.SIDES[side](replace(SMALL, dropout=0.3), 32)
    assert not torch.equal(read(tokens), read(tokens))
    if side != "reformer":  # which hashes by other directions each time
        with torch.no_grad():
            assert torch.equal(read(tokens), read(tokens))


@pytest.mark.parametrize("kind", ["window", "lsh"])
def test_the_weights_of_ours_have_the_rate(kind):
    encoder = long_sides.ours(replace(SMALL, dropout=0.3), 32, kind)
    mixers = [module for module in encoder.modules() if isinstance(module, MixerLayer)]
    assert [mixer.dropout for mixer in mixers] == [0.3] * SMALL.depth


def test_the_path_is_the_one_that_is_taken(monkeypatch):
    """A piece has 64 queries and their windows of 4 to each side; 64 tokens more are as fast with a mask."""
    monkeypatch.delenv(BORDER, raising=False)
    assert [long.path(SMALL, length, "both") for length in (136, 137)] == ["mask", "pieces"]
    monkeypatch.setenv(BORDER, "10")
    results = [long.path(SMALL, length, mode) for mode in long.MODES for length in (82, 83)]
    assert results == ["mask", "pieces", "mask", "mask"]  # what was measured counts where nothing is learned


def test_it_is_reported_and_drawn(tmp_path):
    from rich.console import Console

    mine = row(2.0, 4.0, 150.0) | {"path": "pieces"}
    both = long.summary({"window": [mine], "longformer": [row(6.0, 8.0, 300.0)]})
    rows = {"512": {"forward": both, "both": both}, "1024": {"forward": both, "both": both}}
    results = {
        "shape": {"depth": 4, "width": 256, "heads": 4, "window": 128, "rounds": 1, "chunk": 64, "dropout": 0.1},
        "repetitions": 1, "slopes": long.fit_slopes(rows), "kept_bytes": {"lsh": {"2": 2**20, "4": 2**20}},
        "lengths": rows,
        "machine": {"threads": 2, "processor": "one", "cores": 2, "load_average": [0.0]}, "versions": {"torch": "2"},
    }  # fmt: skip
    console = Console(width=200, record=True)
    console.print(long_report.render(results))
    output = console.export_text()
    assert any(line.split() == ["512", "1,000.0", "3,000.0", "3.00"] for line in output.splitlines())
    assert any(line.split() == ["512", "50", "200", "4.00"] for line in output.splitlines())
    assert "1.0 MB at 2, 1.0 MB at 4" in output
    assert "dropout 0.1 of vectors and of weights" in output
    assert "window went by: 512 pieces, 1,024 pieces" in output
    long_report.draw(rows, str(tmp_path / "long.svg"))
    assert "<svg" in (tmp_path / "long.svg").read_text()
