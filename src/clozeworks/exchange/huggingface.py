"""Hugging Face directories, in and out, through one table of names a family."""

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
from clozeworks.core.errors import InputError, RecipeError, suggest
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import tensors
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
    transfo_xl,
    xlnet,
)
from clozeworks.exchange.templates import fitting, infer_template
from clozeworks.model import Model
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.positions import LearnedPositions, SinusoidalPositions
from clozeworks.nn.reversible import Reversible
from clozeworks.nn.two_stream import TwoStream
from clozeworks.objectives.mask.phrases import MaskPhrases
from clozeworks.recipe import Recipe
from clozeworks.tasks.task import Task

CONFIG = "config.json"
FAMILIES: dict[str, Family] = {
    names.FAMILY.model_type: names.FAMILY
    for names in (
        bert,
        roberta,
        albert,
        ernie,
        distilbert,
        openai_gpt,
        transfo_xl,
        xlnet,
        longformer,
        reformer,
        marian,
    )
}
POSITIONS = "encoder.embed.positions.table.weight"
TASK = "task"  # a head, until it is known what for
HEADS = ("masked_lm", "sentence_pair", "span_boundary", "next_token", "permuted_lm")


@dataclass(slots=True)
class Read:
    """A directory as read: the recipe its config and tensors describe."""

    recipe: Recipe
    tensors: dict[str, Tensor]  # by our names
    unused: list[str] = field(default_factory=list)  # their names of what pretraining has no part for


def read(directory: Path, allow_pickle: bool = False, tokenizer: Tokenizer | None = None) -> Read:
    config = read_config(directory / CONFIG)
    with _named(directory):
        family = FAMILIES[config["model_type"]].of(config)
    head = family.head(config)
    if head is not None:
        family = dataclasses.replace(family, names=(*family.names, *head.names(TASK)))
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
        family.import_hook(config, recipe, found)
    if head is not None:
        frame = (
            fitting(copy.deepcopy(family.template), recipe)
            if tokenizer is None
            else infer_template(recipe, tokenizer, whole=False)
        )
        task = head.read(config, recipe, frame)
        recipe.objective.losses = (*(loss for loss in recipe.objective.losses if loss.name in head.besides), task)
        found = {name.replace(f"heads.{TASK}.", f"heads.{task.name}.", 1): each for name, each in found.items()}
    spec.check(recipe, str(directory / CONFIG))
    if "encoder.pooler.dense.weight" not in found:
        recipe.encoder.pooler = None
    elif recipe.objective.losses and not any(loss.pools for loss in recipe.objective.losses):  # nothing would read it
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
    without an offset is the same model. One has a relu in the head of its tasks: with another, the class that tells
    segments apart is.
    """
    embed, positions = recipe.encoder.embed, recipe.encoder.embed.positions
    if recipe.decoder is not None:
        return FAMILIES["marian"]
    if isinstance(recipe.encoder.stack, TwoStream):
        return FAMILIES["xlnet"]
    if any(isinstance(mixer, GlobalWindow) for mixer in recipe.encoder.stack.mixers()):
        return FAMILIES["longformer"]
    if isinstance(recipe.encoder.stack, Reversible):
        return FAMILIES["reformer"]
    if recipe.objective.corruption is not None and recipe.objective.corruption.kind == "causal":
        added = any(getattr(mixer, "bias", None) is not None for mixer in recipe.encoder.stack.mixers())
        return FAMILIES["transfo-xl" if added else "openai-gpt"]
    if embed.project or embed.width not in (None, recipe.encoder.width) or bert.shares(recipe.encoder.stack):
        return FAMILIES["albert"]
    more = {loss.name for loss in recipe.objective.losses} & {"sentence_pair", "span_boundary"}
    offset = positions.offset if isinstance(positions, LearnedPositions) else 0
    if offset and pad in (None, offset - 1) and not more:
        return FAMILIES["roberta"]
    if not embed.segments and getattr(getattr(recipe.task, "summary", None), "activation", "relu") == "relu":
        return FAMILIES["distilbert"]
    return FAMILIES["ernie" if isinstance(recipe.objective.corruption, MaskPhrases) else "bert"]


def fits(recipe: Recipe) -> bool:
    """Whether a class of theirs has these parts, as far as a recipe can tell."""
    recipe = copy.deepcopy(recipe)
    recipe.objective.losses = tuple(loss for loss in recipe.objective.losses if "teacher" not in loss.reads)
    positions = recipe.encoder.embed.positions
    if recipe.decoder is not None:
        recipe.decoder.start, recipe.decoder.end = 0, 0  # a tokenizer has them
    if isinstance(positions, SinusoidalPositions) and recipe.decoder is not None:
        positions.order = "halves"  # units are put into that order on the way
    family = _family(recipe, None)
    if isinstance(positions, LearnedPositions) and family is not FAMILIES["roberta"]:
        positions.offset = 0
    try:
        family.write(recipe)
    except RecipeError:
        return False
    return True


def _count_from(first: int, positions: LearnedPositions, state: dict[str, Tensor]) -> None:
    """The table with so many rows before that of position 0."""
    if positions.offset != first:
        rows = state[POSITIONS][positions.offset :]
        state[POSITIONS] = torch.cat([rows.new_zeros(first, rows.shape[1]), rows])
        positions.offset = first


def write(
    directory: Path, model: Model, recipe: Recipe, pad: int | None = None, sep: int | None = None
) -> dict[str, Any]:
    """config.json and model.safetensors as `from_pretrained` wants them; the config is given back.

    What compares with a teacher serves training alone and is left out, the maps of such losses too; beside a task, so
    does every other loss. Heads of the model that the recipe does not name are left out as well.
    """
    recipe, state, task = copy.deepcopy(recipe), tensors.state(model), recipe.task
    losses, positions = recipe.objective.losses, recipe.encoder.embed.positions
    family, head = _family(recipe, pad), None
    where = f"{recipe.name}.objective.losses.{0 if task is None else losses.index(task)}"
    if task is not None:
        head = _head(family, task, where)
    kept = tuple(loss for loss in losses if "teacher" not in loss.reads and (head is None or loss.name in head.besides))
    left = tuple(f"heads.{loss.name}." for loss in losses if loss not in kept and loss != task)
    left += tuple(f"heads.{name}." for name in model.heads if name not in {loss.name for loss in losses})
    state = {name: tensor for name, tensor in state.items() if not name.startswith(left)}
    recipe.objective.losses = kept
    if isinstance(positions, LearnedPositions) and family is not FAMILIES["roberta"]:
        first = (positions.offset or 2 if pad is None else pad + 1) if family is FAMILIES["longformer"] else 0
        _count_from(first, positions, state)
    if model.encoder.pooler is None:
        recipe.encoder.pooler = None
    if head is not None and task is not None:
        task = head.settle(recipe, task, state)
    family.export_hook(recipe, state)
    config = family.write(recipe)
    family = family.of(config)
    if head is not None and task is not None:
        family = dataclasses.replace(family, names=(*family.names, *head.names(task.name)))
        config |= head.write(recipe, task, where)
    if pad is not None:
        config["pad_token_id"] = pad
    if sep is not None and config["model_type"] == "longformer":
        config["sep_token_id"] = sep  # what stands before it is marked in a question
    bare = not recipe.objective.losses and task is None
    renamed = {}
    for name, tensor in state.items():
        theirs = family.to_theirs(name)
        assert theirs is not None, name
        renamed[theirs.removeprefix(family.prefix) if bare else theirs] = tensor
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors.write(directory / tensors.FILE, renamed)
    return config


def _head(family: Family, task: Task, where: str) -> Head:
    """The class of a family that serves a task."""
    for head in family.heads:
        if task.name in head.tasks:
            return next((each for each in family.heads if each.serves(task)), head)
    needed = (
        f"Hugging Face has {', '.join(head.name for head in family.heads) or 'no class with a task'} of this family"
    )
    raise RecipeError(where, type(task).__name__, needed, "keep the model in its own format")
