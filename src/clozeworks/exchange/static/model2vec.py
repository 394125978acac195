"""Directories that `model2vec.StaticModel` loads: model.safetensors with one table, tokenizer.json, config.json."""

from pathlib import Path

from clozeworks.core import atomic_io
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import tensors
from clozeworks.exchange.static.table import SMOOTHING, TABLE
from clozeworks.model import Model
from clozeworks.recipe import Recipe


def write(directory: Path, model: Model, recipe: Recipe, tokenizer: Tokenizer) -> None:
    """The table of a static model and the tokenizer that it goes with."""
    table = tensors.state(model)[TABLE]
    tensors.write(directory / tensors.FILE, {"embeddings": table})
    tokenizer.save(directory)
    config = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "tokenizer_name": recipe.name,
        "hidden_dim": table.shape[1],
        "sif_coefficient": SMOOTHING,
        "normalize": True,
    }
    atomic_io.write_json(directory / "config.json", config)
