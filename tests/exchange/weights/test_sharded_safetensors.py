"""Rows of tensors from several files, whoever wrote them and whoever asks."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from clozeworks.core.errors import InputError
from clozeworks.exchange.weights import sharded_safetensors

WHOLE = {"table": torch.arange(30.0).view(10, 3), "bias": torch.arange(2.0), "step": torch.tensor(7.0)}


def written(directory: Path, size: int) -> Path:
    """In parts, as processes that each hold a chunk of the rows write them."""
    for rank in range(size):
        content, rows = {"step": WHOLE["step"]}, {}
        for name in ("table", "bias"):
            each = -(-len(WHOLE[name]) // size)
            part = WHOLE[name][rank * each : (rank + 1) * each]
            rows[name] = min(rank * each, len(WHOLE[name])), len(WHOLE[name])
            if len(part):
                content[name] = part.contiguous()
        save_file(
            content,
            directory / sharded_safetensors.part_of("model.safetensors", rank, size),
            {"rows": json.dumps(rows)},
        )
    return directory


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_any_rows_from_any_number_of_files(tmp_path: Path, size: int):
    with sharded_safetensors.Slices(written(tmp_path, size), "model.safetensors") as kept:
        assert set(kept) == set(WHOLE)
        assert {name: kept.shape(name) for name in WHOLE} == {n: tuple(t.shape) for n, t in WHOLE.items()}
        for begin in range(11):
            for end in range(begin, 11):
                assert torch.equal(kept.rows("table", begin, end), WHOLE["table"][begin:end])
        assert torch.equal(kept.rows("step"), WHOLE["step"])
    for name, tensor in sharded_safetensors.read(tmp_path, "model.safetensors").items():
        assert torch.equal(tensor, WHOLE[name])


def test_one_file_is_read_alike(tmp_path: Path):
    save_file(WHOLE, tmp_path / "model.safetensors")
    with sharded_safetensors.Slices(tmp_path, "model.safetensors") as kept:
        assert torch.equal(kept.rows("table", 3, 5), WHOLE["table"][3:5])
    assert set(sharded_safetensors.read(tmp_path, "model.safetensors")) == set(WHOLE)


def test_what_is_missing_is_reported(tmp_path: Path):
    with pytest.raises(InputError, match=r"no model\.safetensors, nor parts of it"):
        sharded_safetensors.Slices(tmp_path, "model.safetensors")
    (written(tmp_path, 2) / "model-1-of-2.safetensors").unlink()
    with pytest.raises(InputError, match=r"of the rows 0 to [0-9]+; all of them are needed"):
        sharded_safetensors.read(tmp_path, "model.safetensors")


def test_complete_means_every_part():
    two = ["model-0-of-2.safetensors", "model-1-of-2.safetensors"]
    assert sharded_safetensors.complete([*two, "state.json"], "model.safetensors")
    assert not sharded_safetensors.complete(two[:1], "model.safetensors")
    assert not sharded_safetensors.complete(["state.json", "optimizer-0-of-1.safetensors"], "model.safetensors")
    assert sharded_safetensors.complete(["model.safetensors"], "model.safetensors")


@pytest.mark.parametrize("rows", ["[" * 5000 + "]" * 5000, "[]", '{"table": 3}', '{"table": ["a", null]}', "{"])
def test_metadata_of_others_is_not_believed(rows: str, tmp_path: Path):
    save_file({"table": WHOLE["table"]}, tmp_path / "model.safetensors", {"rows": rows})
    with pytest.raises(InputError, match=r"unreadable metadata .*first row and number of rows"):
        sharded_safetensors.read(tmp_path, "model.safetensors")
