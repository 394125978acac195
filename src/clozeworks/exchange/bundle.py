"""A model with its tokenizer and its recipe, read from and written to every format.

clozeworks               recipe.json  model.safetensors  tokenizer.json; runs and their checkpoints, too
hf                       config.json  model.safetensors  tokenizer.json, as `transformers` has them
sentence-transformers    the same, and files that say how a text becomes one vector
onnx                     model.onnx  onnx.json  tokenizer.json, written and never read
static                   our own format, of an encoder that is a table of token vectors
model2vec                the same table, as the library of this name has it; written and never read
ELMo                     options.json and HDF5, read and never written
"""

import dataclasses
import os
import re
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
from clozeworks.exchange.names import elmo, roberta
from clozeworks.exchange.onnx import write as onnx
from clozeworks.exchange.static import model2vec, table
from clozeworks.model import Model
from clozeworks.nn.int8.parts import refuse_int8
from clozeworks.recipe import Recipe

HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)  # bert-base-uncased, google/bert_uncased_L-2_H-128_A-2
Format = Literal["clozeworks", "hf", "sentence-transformers", "onnx", "static", "model2vec"]
TABLES = ("static", "model2vec")


@dataclass(slots=True)
class Bundle:
    """What a model directory holds."""

    model: Model
    tokenizer: Tokenizer | None
    recipe: Recipe
    facts: dict[str, Any] = field(default_factory=dict)  # data counts, metrics: what its card says
    unused: list[str] = field(default_factory=list)  # tensors of the directory that no part takes


def read_bundle(path: str | os.PathLike[str], parts: Iterable[type[Spec]] = (), allow_pickle: bool = False) -> Bundle:
    """A run or one of its checkpoints, a model directory, or a Hugging Face directory of a supported family.

    `parts` are the caller's own classes in the recipe. A pickle is opened only if allowed, by a process of its own.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError("path", repr(path)[:60], "the directory of a model or a run is needed", "give a path")
    directory = Path(path)
    if not directory.is_dir():
        given = "a file" if directory.exists() else "no such directory"
        needed, todo = "a run, a model or a Hugging Face directory is needed", hub_hint(path) or "check the path"
        raise InputError(path, given, needed, todo)
    if (directory / files.RECIPE).is_file():
        return _read_own(directory, parts)
    pools = (directory / sentence_transformers.MODULES).is_file()
    inner = sentence_transformers.model_in(directory) if pools else directory
    if (inner / huggingface.CONFIG).is_file():
        return _read_huggingface(directory, inner, pools, allow_pickle)
    if elmo.is_in(directory):
        published = elmo.read(directory)
        model = files.build(published.recipe, published.tensors, directory)
        return Bundle(model, published.tokenizer, published.recipe)
    needed = f"{files.RECIPE} or {huggingface.CONFIG} is needed"
    raise InputError(path, "neither a model nor a run", needed, "give the directory that `pretrain` or `export` wrote")


def hub_hint(path: str | os.PathLike[str]) -> str | None:
    """What to do where a path that does not exist may be the name of a model of the Hugging Face hub."""
    name = str(path)
    if Path(name).exists() or ("/" in name and Path(name).parent.is_dir()) or not HUB_NAME.fullmatch(name):
        return None
    command = f"hf download {name} --local-dir {name}"
    return f"nothing is downloaded here: for a model of the Hugging Face hub run `{command}`, then give that directory"


def _read_own(directory: Path, parts: Iterable[type[Spec]]) -> Bundle:
    """A model directory, a checkpoint or a run."""
    weights, place, step = _read_weights(directory)
    recipe = files.read_recipe(place / files.RECIPE, parts)
    model = files.build(recipe, weights, directory)
    return Bundle(model, files.read_tokenizer(place), recipe, card.read_facts(directory, step))


def _read_huggingface(directory: Path, inner: Path, pools: bool, allow_pickle: bool) -> Bundle:
    """The model in `inner`; where the directory `pools`, it is one of sentence-transformers with the model in it."""
    tokenizer = files.read_tokenizer(inner)
    imported = huggingface.read(inner, allow_pickle, tokenizer)
    if pools:
        imported.recipe.pooling = sentence_transformers.read(directory, tokenizer)
    model = files.build(imported.recipe, imported.tensors, directory)
    facts = {"model_type": imported.model_type} if imported.model_type in roberta.ALIKE else {}
    return Bundle(model, tokenizer, imported.recipe, facts, imported.unused)


def _read_weights(directory: Path) -> tuple[dict[str, Tensor], Path, int | None]:
    """The weights of a model directory or a checkpoint, or those of a run's newest sound checkpoint; where recipe and
    tokenizer are: of a run those of the checkpoint, which are verified; and the step that they are of, if known."""
    if (directory / checkpoint.MANIFEST).is_file():
        try:
            checkpoint.verify(directory)
        except checkpoint.DamagedError as error:
            raise InputError(directory, error, "a sound checkpoint is needed", "take another, or the run") from None
    if (directory / tensors.FILE).is_file():
        return tensors.read(directory / tensors.FILE), directory, tensors.read_step(directory / tensors.FILE)
    newest = checkpoint.newest(directory)
    if newest is None:
        given, todo = "no checkpoint that verifies", "run the pretrain command again"
        raise InputError(directory, given, "a trained model is needed", todo)
    place = newest.path if (newest.path / files.RECIPE).is_file() else directory
    return newest.tensors(), place, newest.step


def _resolve_decoder_ends(bundle: Bundle) -> Recipe:
    """The recipe with the tokens where a decoder's text begins and ends, of which only the tokenizer may know."""
    recipe, tokenizer = bundle.recipe, bundle.tokenizer
    if recipe.decoder is None or tokenizer is None:
        return recipe
    start = tokenizer.cls if recipe.decoder.start is None else recipe.decoder.start
    end = tokenizer.sep if recipe.decoder.end is None else recipe.decoder.end
    return dataclasses.replace(recipe, decoder=dataclasses.replace(recipe.decoder, start=start, end=end))


def write_bundle(
    bundle: Bundle,
    path: str | os.PathLike[str],
    format: Format = "clozeworks",
    precision: onnx.Precision = "fp32",
    dimensions: int | None = None,
) -> Path:
    """Write a model directory, whole or not at all.

    `hf` is what `transformers` loads with from_pretrained, and `sentence-transformers` that with the files of the
    library of this name: the encoder alone, and how `encode` makes vectors. `onnx` is a graph for onnxruntime, of int8
    weights where `precision` says so. `static` is a table of token vectors of so many `dimensions` (256 unless given),
    made of the encoder: an ordinary model, or with `model2vec` the files of the library of this name.
    """
    if format not in get_args(Format):
        raise InputError("format", format, f"one of {', '.join(get_args(Format))} is needed", "choose one")
    if precision not in get_args(onnx.Precision):
        raise InputError(
            "precision", precision, f"one of {', '.join(get_args(onnx.Precision))} is needed", "choose one"
        )
    if precision != "fp32" and format != "onnx":
        raise InputError("precision", precision, f"it is for onnx, and the format is {format}", "use fp32")
    if dimensions is not None and format not in TABLES:
        given = f"it is for {' and '.join(TABLES)}, and the format is {format}"
        raise InputError("dimensions", dimensions, given, "leave it out")
    if format != "clozeworks":
        refuse_int8(bundle.recipe.name, bundle.recipe.encoder.int8 is not None, f"format {format}")
    if format in TABLES:
        given = bundle.model, bundle.recipe, bundle.tokenizer
        model, recipe = table.make_static(*given, dimensions or table.DIMENSIONS)
        bundle = dataclasses.replace(bundle, model=model, recipe=recipe)
    with atomic_io.directory(path) as folder:
        recipe = _resolve_decoder_ends(bundle)
        headless = recipe.task is not None and not recipe.task.has_head
        if format == "sentence-transformers" or (format == "hf" and headless):
            recipe = dataclasses.replace(recipe, objective=dataclasses.replace(recipe.objective, losses=()))
        if format == "sentence-transformers":
            sentence_transformers.write(folder, recipe)
        if format in ("clozeworks", "static"):
            files.write(folder, bundle.model, bundle.recipe)
            if bundle.tokenizer is not None:
                bundle.tokenizer.save(folder)
        elif format == "model2vec" and bundle.tokenizer is not None:
            model2vec.write(folder, bundle.model, recipe, bundle.tokenizer)
        elif format == "onnx":
            onnx.write(folder, bundle.model, recipe, bundle.tokenizer, precision)
        else:
            pad, sep = (bundle.tokenizer.pad, bundle.tokenizer.sep) if bundle.tokenizer else (None, None)
            huggingface.write(folder, bundle.model, recipe, pad, sep, bundle.facts.get("model_type"))
        if format not in ("clozeworks", *TABLES) and bundle.tokenizer is not None:
            specials.write(folder, bundle.tokenizer, recipe)
        card.write(folder, bundle.recipe, bundle.facts, format)
    return Path(path)
