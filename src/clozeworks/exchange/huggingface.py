"""Hugging Face directories, in and out, through one table of config fields and one of names a family.

    in:   config.json -> family -> recipe      model.safetensors -> our names -> import hook -> weights
    out:  recipe -> family                     weights -> export hook -> their names -> model.safetensors
                 -> config.json

A recipe decides which family's class holds the model (`choose_family`); a config names its own.
"""

import contextlib
import copy
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.json_reader import read_json
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import files, read_back, tensors
from clozeworks.exchange.config_table import CONFIG, NO_SUCH_PART, OWN_FORMAT
from clozeworks.exchange.heads import Head
from clozeworks.exchange.names import (
    Family,
    albert,
    bert,
    distilbert,
    ernie,
    longformer,
    marian,
    openai_gpt,
    reformer,
    roberta,
    roformer,
    transfo_xl,
    xlnet,
)
from clozeworks.exchange.templates import fitting, infer_template
from clozeworks.model import Model
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.chunks import LocalAttention
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.mixers.lsh import LSH
from clozeworks.nn.positions import LearnedPositions, SinusoidalPositions
from clozeworks.nn.reversible import Reversible
from clozeworks.nn.two_stream import TwoStream
from clozeworks.objectives.mask.phrases import MaskPhrases
from clozeworks.recipe import Recipe
from clozeworks.tasks.task import Task

_MODULES = (
    bert, roberta, albert, ernie, distilbert, openai_gpt, transfo_xl, xlnet, longformer, reformer, marian, roformer
)  # fmt: skip
FAMILIES: dict[str, Family] = {
    family.model_type: family for family in (*(module.FAMILY for module in _MODULES), *roberta.FAMILIES)
}
POSITIONS = "encoder.embed.positions.table.weight"
TASK = "task"  # a head, until it is known what for
HELD = (Attention, GlobalWindow, LSH, LocalAttention)  # mixers that some family has
HEADS = ("masked_lm", "sentence_pair", "span_boundary", "next_token", "permuted_lm")


@dataclass(slots=True)
class ImportedModel:
    """A directory as read: the recipe its config and tensors describe."""

    recipe: Recipe
    tensors: dict[str, Tensor]  # by our names
    unused: list[str] = field(default_factory=list)  # their names of what pretraining has no part for
    model_type: str = ""  # the family, as the config calls it


def read(directory: Path, allow_pickle: bool = False, tokenizer: Tokenizer | None = None) -> ImportedModel:
    """The recipe and the weights of a directory: which losses and which task it has, its tensors show.

    The template of a task is the tokenizer's, or without one the family's.
    """
    config = read_config(directory / CONFIG)
    with _name_missing_field(directory):
        family = FAMILIES[config["model_type"]].of(config)
    head = family.head(config)
    if head is not None:
        family = dataclasses.replace(family, names=(*family.names, *head.names(TASK)))
    weights, unused = _read_weights(directory, family, allow_pickle)
    losses = tuple(name for name in HEADS if any(key.startswith(f"heads.{name}.") for key in weights))
    with _name_missing_field(directory):
        recipe = family.read(config, losses)
        family.import_hook(config, recipe, weights)
    if head is not None:
        template = infer_template(recipe, tokenizer, whole=False) if tokenizer else None
        template = template or fitting(copy.deepcopy(family.template), recipe)
        task = head.read(config, recipe, template)
        recipe.objective.losses = (*(loss for loss in recipe.objective.losses if loss.name in head.besides), task)
        weights = {name.replace(f"heads.{TASK}.", f"heads.{task.name}.", 1): each for name, each in weights.items()}
    spec.check(recipe, str(directory / CONFIG))
    unused += [family.to_theirs(name) or name for name in _drop_unread_pooler(recipe, weights)]
    recipe.name = directory.resolve().name
    return ImportedModel(recipe, weights, unused, config["model_type"])


def _read_weights(directory: Path, family: Family, allow_pickle: bool) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors by our names, and their names of those we have no part for. What a file has twice must be equal."""
    weights: dict[str, Tensor] = {}
    tied: dict[str, Tensor] = {}
    unused: list[str] = []
    for name, tensor in tensors.read_directory(directory, allow_pickle).items():
        ours = family.to_ours(name)
        if name in family.tied:
            tied[name] = tensor
        elif ours is not None:
            weights[ours] = tensor
        elif tensor.is_floating_point():
            unused.append(name)
    for name, tensor in tied.items():
        if not weights.setdefault(family.tied[name], tensor).equal(tensor):
            given, todo = f"{name} differs from its tied twin", "choose a model with tied embeddings"
            raise InputError(directory, given, "tied embeddings are needed", todo)
    return weights, unused


def _drop_unread_pooler(recipe: Recipe, weights: dict[str, Tensor]) -> list[str]:
    """Leave out a pooler that no loss would read; its tensors by our names."""
    if "encoder.pooler.dense.weight" not in weights:
        recipe.encoder.pooler = None
        return []
    if not recipe.objective.losses or any(loss.pools for loss in recipe.objective.losses):
        return []
    names = [name for name in weights if name.startswith("encoder.pooler.")]
    for name in names:
        del weights[name]
    return names


@contextlib.contextmanager
def _name_missing_field(directory: Path) -> Iterator[None]:
    """Refuse a config that lacks a field, by the name of the field."""
    try:
        yield
    except KeyError as missing:
        given = f"no field {missing.args[0]}"
        raise InputError(directory / CONFIG, given, "it gives the model its shape", "take the whole config") from None


def read_config(file: Path) -> dict[str, Any]:
    """The config of a model of a supported family."""
    try:
        config = read_json(file)
    except (ValueError, OSError) as error:
        raise InputError(file, f"unreadable ({error})", "a Hugging Face config is needed", "check the file") from None
    kind = config.get("model_type") if isinstance(config, dict) else type(config).__name__
    if str(kind) not in FAMILIES:
        todo = "choose a model of " + ", ".join(sorted(FAMILIES))  # a library wrote it: it is not misspelt
        raise InputError(file, f"model_type {kind}", "models of this family are not read", todo)
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        needed = "a list of names of classes is needed"
        raise InputError(file, f"architectures {str(names)[:80]}", needed, "mend the file, or download it again")
    return config


def choose_family(recipe: Recipe, pad: int | None) -> Family:
    """The family whose class has these parts.

    One class counts positions from the padding id and has one head: for another id, or with another head, the class
    without an offset is the same model. One has a relu in the head of its tasks: with another, the class that tells
    segments apart is.
    """
    embed, positions = recipe.encoder.embed, recipe.encoder.embed.positions
    for side, part in (("encoder", recipe.encoder), ("decoder", recipe.decoder)):
        for mixer in () if part is None else part.stack.mixers():
            if not isinstance(mixer, HELD):
                where, given = f"{recipe.name}.{side}.stack.block.mixer", type(mixer).__name__
                raise RecipeError(where, given, "no class of a family that is exported has such layers", OWN_FORMAT)
    if recipe.decoder is not None:
        return FAMILIES["marian"]
    if isinstance(recipe.encoder.stack, TwoStream):
        return FAMILIES["xlnet"]
    if any(isinstance(mixer, GlobalWindow) for mixer in recipe.encoder.stack.mixers()):
        return FAMILIES["longformer"]
    if isinstance(recipe.encoder.stack, Reversible):
        return FAMILIES["reformer"]
    if any(getattr(mixer, "rotary", None) is not None for mixer in recipe.encoder.stack.mixers()):
        return FAMILIES["roformer"]
    if recipe.objective.corruption is not None and recipe.objective.corruption.kind == "causal":
        added = any(getattr(mixer, "bias", None) is not None for mixer in recipe.encoder.stack.mixers())
        return FAMILIES["transfo-xl" if added else "openai-gpt"]
    if embed.project or embed.width not in (None, recipe.encoder.width) or bert.shares(recipe.encoder.stack):
        return FAMILIES["albert"]
    more = {loss.name for loss in recipe.objective.losses} & {"sentence_pair", "span_boundary"}
    offset = positions.offset if isinstance(positions, LearnedPositions) else 0
    if offset and pad in (None, offset - 1) and not more:
        return FAMILIES["roberta"]
    summary = None if recipe.task is None else recipe.task.head_parts().summary
    if not embed.segments and (summary is None or summary.activation == "relu"):
        return FAMILIES["distilbert"]
    return FAMILIES["ernie" if isinstance(recipe.objective.corruption, MaskPhrases) else "bert"]


def fits(recipe: Recipe) -> bool:
    """Whether a class of theirs has these parts, as far as a recipe can tell."""
    recipe = copy.deepcopy(recipe)
    recipe.objective.losses = tuple(loss for loss in recipe.objective.losses if "teacher" not in loss.needs.reads)
    positions = recipe.encoder.embed.positions
    if recipe.decoder is not None:
        recipe.decoder.start, recipe.decoder.end = 0, 0  # a tokenizer has them
    if isinstance(positions, SinusoidalPositions) and recipe.decoder is not None:
        positions.order = "halves"  # units are put into that order on the way
    try:
        family = choose_family(recipe, None)
        if isinstance(positions, LearnedPositions) and family is not FAMILIES["roberta"]:
            positions.offset = 0
        family.write(recipe)
    except RecipeError:
        return False
    return True


def write(
    directory: Path,
    model: Model,
    recipe: Recipe,
    pad: int | None = None,
    sep: int | None = None,
    model_type: str | None = None,
) -> dict[str, Any]:
    """config.json and model.safetensors as `from_pretrained` wants them; the config is given back.

    What compares with a teacher serves training alone and is left out, the maps of such losses too; beside a task, so
    does every other loss; one that `decides` is refused. Heads of the model that the recipe does not name are left out
    as well. `pad` and `sep` are the tokenizer's; `model_type` is that of the directory it came from, and decides among
    families that are alike. What was written is read back: a field of the model that did not come back is refused by
    its name.
    """
    task, given, recipe = recipe.task, recipe, copy.deepcopy(recipe)
    if model.encoder.pooler is None:
        recipe.encoder.pooler = None
    family = choose_family(recipe, pad)
    where = f"{recipe.name}.objective.losses.{0 if task is None else recipe.objective.losses.index(task)}"
    for index, loss in enumerate(recipe.objective.losses):
        if loss.decides:
            path = f"{recipe.name}.objective.losses.{index}"
            raise RecipeError(path, type(loss).__name__, NO_SUCH_PART, OWN_FORMAT)
    head = None if task is None else _choose_head(family, task, where)
    weights = _keep_exported(recipe, model, head)
    _count_positions_as(family, pad, recipe, weights)
    if head is not None and task is not None:
        task = head.settle(recipe, task, weights)
    family.export_hook(recipe, weights)
    config = family.write(recipe)
    family = family.of(config)
    if head is not None and task is not None:
        family = dataclasses.replace(family, names=(*family.names, *head.names(task.name)))
        config |= head.write(recipe, task, where)
    if pad is not None:
        config["pad_token_id"] = pad
    if sep is not None and config["model_type"] == "longformer":
        config["sep_token_id"] = sep  # what stands before it is marked in a question
    if config["model_type"] == "roberta" and model_type in tuple(roberta.ALIKE):
        config = roberta.rename(config, model_type)
    bare = not recipe.objective.losses and task is None
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors.write(directory / tensors.FILE, _name_as_theirs(weights, family, recipe.name, bare))
    imported = read(directory)
    read_back.compare_recipes(given, recipe, imported.recipe, family.unsaid)
    again = files.build(imported.recipe, imported.tensors, recipe.name)
    read_back.compare_outputs(model, again, recipe, family)
    return config


def _keep_exported(recipe: Recipe, model: Model, head: Head | None) -> dict[str, Tensor]:
    """The weights of what their class holds; the recipe keeps the losses that go with it, a task aside."""
    losses, task = recipe.objective.losses, recipe.task
    alone = tuple(loss for loss in losses if "teacher" not in loss.needs.reads)
    kept = tuple(loss for loss in alone if head is None or loss.name in head.besides)
    left = tuple(f"heads.{loss.name}." for loss in losses if loss not in kept and loss != task)
    left += tuple(f"heads.{name}." for name in model.heads if name not in {loss.name for loss in losses})
    recipe.objective.losses = kept
    return {name: tensor for name, tensor in tensors.state(model).items() if not name.startswith(left)}


def _count_positions_as(family: Family, pad: int | None, recipe: Recipe, weights: dict[str, Tensor]) -> None:
    """Put as many rows before that of position 0 as the family's class has there: of padding, or none."""
    positions = recipe.encoder.embed.positions
    if not isinstance(positions, LearnedPositions) or family is FAMILIES["roberta"]:
        return
    first = (positions.offset or 2 if pad is None else pad + 1) if family is FAMILIES["longformer"] else 0
    if positions.offset != first:
        rows = weights[POSITIONS][positions.offset :]
        weights[POSITIONS] = torch.cat([rows.new_zeros(first, rows.shape[1]), rows])
        positions.offset = first


def _name_as_theirs(weights: dict[str, Tensor], family: Family, recipe: str, bare: bool) -> dict[str, Tensor]:
    """The tensors by their names, which in a bare encoder have no prefix."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        theirs = family.to_theirs(name)
        if theirs is None:
            raise RecipeError(f"{recipe}.{name}", tuple(tensor.shape), NO_SUCH_PART, OWN_FORMAT)
        renamed[theirs.removeprefix(family.prefix) if bare else theirs] = tensor
    return renamed


def _choose_head(family: Family, task: Task, where: str) -> Head:
    """The class of a family that serves a task."""
    for head in family.heads:
        if task.name in head.tasks:
            return next((each for each in family.heads if each.serves(task)), head)
    classes = ", ".join(head.name for head in family.heads) or "no class with a task"
    needed = f"Hugging Face has {classes} of this family"
    raise RecipeError(where, type(task).__name__, needed, OWN_FORMAT)
