"""Model directories that somebody sent: nothing in them is believed, and what is wrong is one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import tensors
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.recipe import build
from clozeworks.recipes import recipe

DEEP = "[" * 100_000 + "]" * 100_000
HUGE = 2_000_000_000


@pytest.fixture(scope="module")
def made() -> TextEncoder:
    tokenizer = Tokenizer.train(["the cat sat on a mat"] * 20, kind="wordpiece", vocab=80)
    small = recipe("bert_tiny")
    small.encoder.vocab, small.encoder.stack.depth = tokenizer.size, 1
    return TextEncoder(build(small).eval(), tokenizer, small)


@pytest.fixture(params=["clozeworks", "hf"])
def directory(request, made: TextEncoder, tmp_path: Path) -> Path:
    save(made, tmp_path / "model", format=request.param)
    assert load(tmp_path / "model").encode(["the cat"]).shape[0] == 1
    return tmp_path / "model"


def config_of(directory: Path) -> Path:
    return next(file for name in ("recipe.json", "config.json") if (file := directory / name).is_file())


def change(file: Path, *path: str, value: Any) -> None:
    data = json.loads(file.read_text())
    at = data
    for name in path[:-1]:
        at = at[name]
    assert path[-1] in at
    at[path[-1]] = value
    file.write_text(json.dumps(data))


SIZES = {
    "recipe.json": [
        ("encoder", "vocab"),
        ("encoder", "embed", "positions", "length"),
        ("encoder", "stack", "block", "ffn", "inner"),
    ],
    "config.json": [("vocab_size",), ("max_position_embeddings",), ("intermediate_size",), ("type_vocab_size",)],
}


@pytest.mark.parametrize("number", range(4))
def test_sizes_are_compared_before_they_are_allocated(directory: Path, number: int):
    file = config_of(directory)
    if number >= len(SIZES[file.name]):
        pytest.skip("it has fewer of them")
    change(file, *SIZES[file.name][number], value=HUGE)
    with pytest.raises(InputError, match=r"is needed|has no such part|has that part|is possible"):
        load(directory)


@pytest.mark.parametrize("name", ["config", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [DEEP, "[1]", "{", '{"a": ' * 3000, "\x00"])
def test_files_that_are_not_what_they_should_be(directory: Path, name: str, content: str):
    (config_of(directory) if name == "config" else directory / name).write_text(content)
    with pytest.raises(InputError):
        load(directory)


@pytest.mark.parametrize(
    "index",
    ["", "[]", "{}", DEEP,
     '{"weight_map": 1}', '{"weight_map": [1]}', '{"weight_map": {"a": 1}}', '{"weight_map": null}',
     '{"weight_map": {"a": "gone.safetensors"}}', '{"weight_map": {"a": "../../etc/passwd"}}',
     '{"weight_map": {"a": ""}}', '{"weight_map": {"a": {"b": 1}}}'],
)  # fmt: skip
def test_an_index_that_is_none(directory: Path, index: str):
    (directory / tensors.FILE).rename(directory / "model-00001-of-00001.safetensors")
    (directory / tensors.INDEX).write_text(index)
    with pytest.raises(InputError):
        tensors.read_directory(directory)


def test_weights_are_finite_fractions(directory: Path):
    file = directory / tensors.FILE
    weights = load_file(file)
    name = next(name for name in weights if name.endswith(("norm.weight", "LayerNorm.weight")))
    for bad, message in (
        (torch.full_like(weights[name], float("nan")), "NaN or infinity in"),
        (torch.ones_like(weights[name], dtype=torch.int64), "of whole numbers"),
    ):
        save_file(weights | {name: bad}, file, metadata={"format": "pt"})
        with pytest.raises(InputError, match=message):
            load(directory)


def test_an_id_far_beyond_the_others_is_refused(directory: Path):
    file = directory / "tokenizer.json"
    data = json.loads(file.read_text())
    data["model"]["vocab"][next(reversed(data["model"]["vocab"]))] = 2**31
    file.write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"has id 2,147,483,648 among"):
        load(directory)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": ""}),  # a panic where it is read
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAAAGFiYw=="}),  # where it meets a text
        ("pre_tokenizer", {"type": "FixedLength", "length": 0}),
    ],
)
def test_panics_of_the_tokenizers_library_are_one_sentence(made: TextEncoder, tmp_path: Path, part: str, value: Any):
    save(made, tmp_path / "model")
    file = tmp_path / "model" / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {part: value}))
    with pytest.raises(InputError, match="not a tokenizer file"):
        load(tmp_path / "model")


def test_lengths_in_a_tokenizer_file_are_not_believed(made: TextEncoder, tmp_path: Path):
    save(made, tmp_path / "model")
    file, fixed = tmp_path / "model" / "tokenizer.json", {"strategy": {"Fixed": 1 << 40}, "direction": "Right"}
    padding = fixed | {"pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"padding": padding}))
    assert load(tmp_path / "model").encode(["the cat"]).shape[0] == 1


@pytest.mark.parametrize("directory", ["hf"], indirect=True)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_position_embeddings", "128"),
        ("max_position_embeddings", [1]),
        ("hidden_act", ["gelu"]),
        ("hidden_act", {}),
        ("architectures", 1e308),
        ("architectures", [3]),
        ("model_type", ["bert"]),
    ],
    ids=str,
)
def test_values_of_another_kind_are_refused(directory: Path, field: str, value: Any):
    change(config_of(directory), field, value=value)
    with pytest.raises(InputError):
        load(directory)
