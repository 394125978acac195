"""A model with its tokenizer and its recipe, read from and written to every format: directories of ours (models, runs,
checkpoints), Hugging Face, sentence-transformers, ELMo's HDF5."""

import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.core.spec import Spec
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import card, checkpoint, files, huggingface, sentence_transformers, specials, tensors
from clozeworks.exchange.names import elmo
from clozeworks.model import Model
from clozeworks.recipe import Recipe

Format = Literal["clozeworks", "hf", "sentence-transformers"]


@dataclass(slots=True)
class Bundle:
    """What a model directory holds."""

    model: Model
    tokenizer: Tokenizer | None
    recipe: Recipe
    facts: dict[str, Any] = field(default_factory=dict)  # data counts, metrics: what its card tells
    unused: list[str] = field(default_factory=list)  # tensors of the directory that no part takes


def read_bundle(path: str | os.PathLike[str], parts: Iterable[type[Spec]] = (), allow_pickle: bool = False) -> Bundle:
    """A run or one of its checkpoints, a model directory, or a Hugging Face directory of a supported family."""
    if not isinstance(path, str | os.PathLike):
        raise InputError("path", repr(path)[:60], "the directory of a model or a run is needed", "give a path")
    directory = Path(path)
    if not directory.is_dir():
        given = "a file" if directory.exists() else "no such directory"
        raise InputError(path, given, "a run, a model or a Hugging Face directory is needed", "check the path")
    if (directory / files.RECIPE).is_file():
        weights, facts, place = _weights(directory)
        recipe = files.read_recipe(place / files.RECIPE, parts)
        return Bundle(files.build(recipe, weights, directory), files.read_tokenizer(place), recipe, facts)
    vectors = (directory / sentence_transformers.MODULES).is_file()
    place = sentence_transformers.model_in(directory) if vectors else directory
    if (place / huggingface.CONFIG).is_file():
        tokenizer = files.read_tokenizer(place)
        found = huggingface.read(place, allow_pickle, tokenizer)
        if vectors:
            found.recipe.pooling = sentence_transformers.read(directory, tokenizer)
        model = files.build(found.recipe, found.tensors, directory)
        return Bundle(model, tokenizer, found.recipe, unused=found.unused)
    if elmo.is_in(directory):
        found = elmo.read(directory)
        return Bundle(files.build(found.recipe, found.tensors, directory), found.tokenizer, found.recipe)
    needed = f"{files.RECIPE} or {huggingface.CONFIG} is needed"
    raise InputError(path, "neither a model nor a run", needed, "give the directory that `pretrain` or `export` wrote")


def _weights(directory: Path) -> tuple[dict[str, Tensor], dict[str, Any], Path]:
    """The weights of a model directory or a checkpoint, or those of a run's newest sound checkpoint; what its card
    should tell; and where recipe and tokenizer are, of a run those of the checkpoint, which are verified."""
    if (directory / checkpoint.MANIFEST).is_file():
        try:
            checkpoint.verify(directory)
        except checkpoint.DamagedError as error:
            raise InputError(directory, error, "a sound checkpoint is needed", "take another, or the run") from None
    if (directory / tensors.FILE).is_file():
        return tensors.read(directory / tensors.FILE), card.read_facts(directory), directory
    newest = checkpoint.newest(directory)
    if newest is None:
        raise InputError(
            directory, "no checkpoint that verifies", "a trained model is needed", "run the pretrain command again"
        )
    place = newest.path if (newest.path / files.RECIPE).is_file() else directory
    return newest.tensors(), card.read_facts(directory), place


def _resolve_decoder_ends(bundle: Bundle) -> Recipe:
    """The recipe, a decoder of which says where a text begins and ends even if that is for the tokenizer to say."""
    recipe, tokenizer = bundle.recipe, bundle.tokenizer
    if recipe.decoder is None or tokenizer is None:
        return recipe
    start = tokenizer.cls if recipe.decoder.start is None else recipe.decoder.start
    end = tokenizer.sep if recipe.decoder.end is None else recipe.decoder.end
    return dataclasses.replace(recipe, decoder=dataclasses.replace(recipe.decoder, start=start, end=end))


def write_bundle(bundle: Bundle, path: str | os.PathLike[str], format: Format = "clozeworks") -> Path:
    """Write a model directory, whole or not at all; `hf` is what `transformers` loads with from_pretrained, and
    `sentence-transformers` that with the files of the library of this name: the encoder alone, and how `encode` makes
    vectors."""
    if format not in get_args(Format):
        raise InputError("format", format, f"one of {', '.join(get_args(Format))} is needed", "choose one")
    with atomic_io.directory(path) as folder:
        recipe = _resolve_decoder_ends(bundle)
        headless = recipe.task is not None and not recipe.task.has_head
        if format == "sentence-transformers" or (format == "hf" and headless):
            recipe = dataclasses.replace(recipe, objective=dataclasses.replace(recipe.objective, losses=()))
        if format == "sentence-transformers":
            sentence_transformers.write(folder, recipe)
        if format != "clozeworks":
            pad, sep = (bundle.tokenizer.pad, bundle.tokenizer.sep) if bundle.tokenizer else (None, None)
            huggingface.write(folder, bundle.model, recipe, pad, sep)
        else:
            files.write(folder, bundle.model, bundle.recipe)
        if bundle.tokenizer is not None and format != "clozeworks":
            specials.write(folder, bundle.tokenizer, recipe)
        elif bundle.tokenizer is not None:
            bundle.tokenizer.save(folder)
        card.write(folder, bundle.recipe, bundle.facts, format)
    return Path(path)
