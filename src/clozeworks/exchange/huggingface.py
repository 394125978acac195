"""Hugging Face directories, in and out, through one table of names a family."""

import contextlib
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from clozeworks import spec
from clozeworks.errors import InputError, suggest
from clozeworks.exchange import tensors
from clozeworks.exchange.names import Family, albert, bert, distilbert, ernie, openai_gpt, roberta, xlnet
from clozeworks.model import Model
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.two_stream import TwoStream
from clozeworks.objectives.mask.phrases import MaskPhrases
from clozeworks.pretraining import Recipe

CONFIG = "config.json"
FAMILIES: dict[str, Family] = {
    names.FAMILY.model_type: names.FAMILY for names in (bert, roberta, albert, ernie, distilbert, openai_gpt, xlnet)
}
HEADS = ("masked_lm", "sentence_pair", "span_boundary", "permuted_lm")


@dataclass(slots=True)
class Read:
    """A directory as read: the recipe its config and tensors describe."""

    recipe: Recipe
    tensors: dict[str, Tensor]  # by our names
    unused: list[str] = field(default_factory=list)  # their names of what pretraining has no part for


def read(directory: Path, allow_pickle: bool = False) -> Read:
    config = read_config(directory / CONFIG)
    with _named(directory):
        family = FAMILIES[config["model_type"]].of(config)
    found: dict[str, Tensor] = {}
    unused: list[str] = []
    tied: dict[str, Tensor] = {}
    for name, tensor in tensors.read_directory(directory, allow_pickle).items():
        ours = family.to_ours(name)
        if ours is None:
            if tensor.is_floating_point():
                unused.append(name)
        elif name in family.tied:
            tied[name] = tensor
        else:
            found[ours] = tensor
    for name, tensor in tied.items():
        ours = family.tied[name]
        if not found.setdefault(ours, tensor).equal(tensor):
            raise InputError(
                directory,
                f"{name} differs from its tied twin",
                "tied embeddings are needed",
                "choose a model with tied embeddings",
            )
    losses = tuple(name for name in HEADS if any(key.startswith(f"heads.{name}.") for key in found))
    with _named(directory):
        recipe = family.read(config, losses)
        family.arrive(config, recipe, found)
    spec.check(recipe, str(directory / CONFIG))
    if "encoder.pooler.dense.weight" not in found:
        recipe.encoder.pooler = None
    elif losses and "sentence_pair" not in losses:  # nothing would read it
        unused += [family.to_theirs(name) or name for name in list(found) if name.startswith("encoder.pooler.")]
        found = {name: tensor for name, tensor in found.items() if not name.startswith("encoder.pooler.")}
    recipe.name = directory.resolve().name
    return Read(recipe, found, unused)


@contextlib.contextmanager
def _named(directory: Path) -> Iterator[None]:
    """A field that the config lacks is told by its name."""
    try:
        yield
    except KeyError as missing:
        given = f"no field {missing.args[0]}"
        raise InputError(directory / CONFIG, given, "it gives the model its shape", "take the whole config") from None


def read_config(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(file, f"unreadable ({error})", "a Hugging Face config is needed", "check the file") from None
    kind = config.get("model_type") if isinstance(config, dict) else type(config).__name__
    if kind not in FAMILIES:
        raise InputError(file, f"model_type {kind}", "a supported family is needed", suggest(str(kind), FAMILIES))
    return config


def _family(recipe: Recipe, pad: int | None) -> Family:
    """The family whose class has these parts.

    One class counts positions from the padding id and has one head: for another id, or with another head, the class
    without an offset is the same model.
    """
    embed, positions = recipe.encoder.embed, recipe.encoder.embed.positions
    if isinstance(recipe.encoder.stack, TwoStream):
        return FAMILIES["xlnet"]
    if recipe.objective.corruption is not None and recipe.objective.corruption.kind == "causal":
        return FAMILIES["openai-gpt"]
    if embed.project or embed.width not in (None, recipe.encoder.width) or bert.shares(recipe.encoder.stack):
        return FAMILIES["albert"]
    more = {loss.name for loss in recipe.objective.losses} & {"sentence_pair", "span_boundary"}
    offset = positions.offset if isinstance(positions, LearnedPositions) else 0
    if offset and pad in (None, offset - 1) and not more:
        return FAMILIES["roberta"]
    if not embed.segments:
        return FAMILIES["distilbert"]
    return FAMILIES["ernie" if isinstance(recipe.objective.corruption, MaskPhrases) else "bert"]


def write(directory: Path, model: Model, recipe: Recipe, pad: int | None) -> dict[str, Any]:
    """config.json and model.safetensors as `from_pretrained` wants them; the config is given back.

    What compares with a teacher serves training alone and is left out, the maps of such losses too.
    """
    recipe, state = copy.deepcopy(recipe), tensors.state(model)
    taught = tuple(f"heads.{loss.name}." for loss in recipe.objective.losses if "teacher" in loss.reads)
    recipe.objective.losses = tuple(loss for loss in recipe.objective.losses if "teacher" not in loss.reads)
    state = {name: tensor for name, tensor in state.items() if not name.startswith(taught)}
    positions = recipe.encoder.embed.positions
    family = _family(recipe, pad)
    if isinstance(positions, LearnedPositions) and positions.offset and family is not FAMILIES["roberta"]:
        table = "encoder.embed.positions.table.weight"
        state[table] = state[table][positions.offset :]
        positions.offset = 0
    if model.encoder.pooler is None:
        recipe.encoder.pooler = None
    family.leave(recipe, state)
    config = family.write(recipe)
    family = family.of(config)
    if pad is not None:
        config["pad_token_id"] = pad
    bare = not recipe.objective.losses
    renamed = {}
    for name, tensor in state.items():
        theirs = family.to_theirs(name)
        assert theirs is not None, name
        renamed[theirs.removeprefix(family.prefix) if bare else theirs] = tensor
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors.write(directory / tensors.FILE, renamed)
    return config
