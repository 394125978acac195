"""The peer reads what we read: the same rows, the same labels, the same order. Speeds are nobody's test."""

import json
from dataclasses import replace

import pytest
import torch

import benchmarks
from benchmarks import lm, plain_loop
from benchmarks.harness import compare_speeds, summarize
from clozeworks.core.batch import Batch, DocumentLayout, TokenInfo
from clozeworks.core.errors import InputError


def rows(order: list[list[int]], targets: list[int], labels: list[int]) -> Batch:
    """A batch of full rows whose tokens are their own places."""
    count, length = len(order), len(order[0])
    place = torch.arange(length).expand(count, -1)
    document = torch.arange(count)[:, None].expand(-1, length)
    appears = torch.tensor(order)
    borders = DocumentLayout(tuple(range(0, count * length, length)), (length,) * count, count, length)
    side = TokenInfo(place, document, appears, appears)
    batch = Batch(place, side, "causal", borders, torch.arange(0, count * length, length))
    batch.targets, batch.labels = torch.tensor(targets), torch.tensor(labels)
    return batch


def test_labels_of_the_peer_are_shifted_already():
    given = plain_loop.following(rows([[0, 1, 2]] * 2, [0, 1, 2, 3, 4], [11, 12, 13, 14, 15]))
    assert given["shift_labels"].tolist() == [[11, 12, 13], [14, 15, -100]]
    assert given["input_ids"].tolist() == [[0, 1, 2], [0, 1, 2]]


def test_who_sees_whom_follows_from_the_order():
    given = plain_loop.permuted(rows([[0, 2, 1, 0], [0, 0, 0, 1]], [1, 2, 7], [21, 22, 23]))
    assert given["perm_mask"][0].tolist() == [
        [1, 1, 1, 0],  # what is not asked sees what is not asked; its own place the class shows it in any case
        [0, 1, 0, 0],  # the last sees all but itself
        [0, 1, 1, 0],
        [0, 1, 1, 1],
    ]
    assert given["target_mapping"].argmax(-1).tolist() == [[1, 2], [3, 0]]
    assert given["target_mapping"].sum(-1).tolist() == [[1, 1], [1, 0]]
    assert given["labels"].tolist() == [[21, 22], [23, -100]]


def segment(tokens: int, seconds: float, cpu: float, peak: float) -> dict:
    return {"steps": 4, "tokens": tokens, "seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak}


def test_the_ratio_is_of_pairs_and_its_spread_is_reported():
    ours = [segment(1000, 1.0, 2.0, 50.0), segment(1000, 2.0, 2.0, 60.0), segment(1000, 1.0, 4.0, 60.0)]
    theirs = [segment(500, 1.0, 2.0, 90.0), segment(500, 2.0, 1.0, 120.0), segment(500, 4.0, 4.0, 120.0)]
    result = summarize({"ours": ours, "theirs": theirs})
    assert result["ratio"]["seconds"] == {"median": 2.0, "lowest": 2.0, "highest": 8.0}
    assert result["ratio"]["cpu_seconds"] == {"median": 2.0, "lowest": 1.0, "highest": 2.0}
    assert result["peak_memory_ratio"] == 0.5
    assert result["sides"]["ours"]["real_tokens_a_step"] == 250
    assert compare_speeds({"small": result}) == [
        ("small", "1,000", "250", "2.00  (2.00 to 8.00)", "2.00  (1.00 to 2.00)", "0.50")
    ]


def test_a_first_look_leaves_out_the_large_models():
    quick = lm.Setting.quick()
    assert "gpt" in quick.cells
    assert "gpt-base" not in quick.cells
    assert quick.cell("gpt").steps < lm.CELLS["gpt"].steps
    assert lm.Setting().cell("gpt-base") == lm.CELLS["gpt-base"]


def test_every_peer_has_inputs():
    assert {cell.peer for cell in lm.CELLS.values()} == set(plain_loop.INPUTS)


def test_an_unknown_cell_gets_a_suggestion():
    with pytest.raises(InputError, match="did you mean gpt"):
        benchmarks.main("lm", cells=("gtp",))


@pytest.mark.slow
def test_both_sides_run_in_turns_and_agree_at_step_0(monkeypatch):
    pytest.importorskip("transformers")
    cells = {
        name: replace(cell, full=32, tokens=256, rows=1500, repetitions=2, steps=2, warmup=1)
        for name, cell in lm.CELLS.items()
        if name in lm.Setting.quick().cells
    }
    monkeypatch.setattr(lm, "CELLS", cells)
    small = lm.Setting(cells=tuple(cells), vocab=1000, documents=40, threads=1)
    results = json.loads(json.dumps(lm.run(small), allow_nan=False))
    for cell in results["cells"].values():
        losses = cell["loss_at_step_0"]
        assert losses["ours"] == pytest.approx(losses["theirs"], abs=1e-5)
        assert [row["steps"] for row in cell["segments"]["theirs"]] == [2, 2]
        real = {side["real_tokens_a_step"] for side in cell["sides"].values()}
        assert len(real) == 1, "both count the same tokens"
        assert cell["workload"]["vocabulary"] == 1500
    assert lm.render(results)
