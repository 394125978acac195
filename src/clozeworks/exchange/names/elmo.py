"""Published ELMo directories: options.json, weights in HDF5 by the names of TensorFlow, perhaps a vocabulary.

    char_embed [261, e]; CNN/W_cnn_i [1, w, e, n], CNN/b_cnn_i; CNN_high_k/{W,b}_{carry,transform}; CNN_proj/{W,b}_proj
    RNN_{0,1}/RNN/MultiRNNCell/Cell{l}/LSTMCell/{W_0 [D + D, 4C], B [4C], W_P_0 [C, D]}

Matrices are turned, since TensorFlow multiplies from the left. Its gates are in the order i, g, f, o, where ours are i,
f, g, o; it adds 1 to the forget gate at run time, which here is in the bias. W_0 has the rows of x before those of h.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import models, pre_tokenizers
from torch import Tensor

from clozeworks.core import spec
from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import read_json
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.model import Encoder
from clozeworks.nn.bidirectional import Bidirectional
from clozeworks.nn.block import Block
from clozeworks.nn.characters import CHARACTERS, CLOSES, OPENS, Characters, spelled
from clozeworks.nn.embed import Embed
from clozeworks.nn.mixers.lstm import LSTM
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe

OPTIONS = "options.json"
SPECIALS = {"pad": "[PAD]", "unk": "<UNK>", "cls": "<S>", "sep": "</S>", "mask": "[MASK]"}
GATES = (0, 2, 1, 3)  # theirs in our order
MOST = 1 << 16  # of any size that options name; the largest published one is 4,096
PACKED = 8  # times the bytes of a file that an array in it may have


@dataclass(slots=True)
class Published:
    """A published model as read, by our names."""

    recipe: Recipe
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer


def is_in(directory: Path) -> bool:
    """Whether a directory holds options of this kind, be the file called options.json or end so."""
    return bool(_find_options(directory))


def read(directory: Path) -> Published:
    """The model of a directory; its words are those of a vocabulary file beside it, and any others by their letters."""
    file, options = _find_options(directory)[0]
    weights = _read_arrays(directory)
    tokenizer = _read_tokenizer(directory)
    recipe, todo = _read_recipe(file, options, tokenizer.size), "take options and weights that belong together"
    spec.check(recipe, str(file))
    try:
        return Published(recipe, _convert(recipe, weights, tokenizer), tokenizer)
    except KeyError as error:
        raise InputError(directory, f"nothing called {error}", "the options speak of it", todo) from None
    except (IndexError, TypeError, ValueError) as error:  # of numpy, about arrays that anybody may have written
        given = f"arrays of another shape ({error})"
        raise InputError(directory, given, "those that the options speak of are needed", todo) from None


def _find_options(directory: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The files of options of this kind, and what they say."""
    matches: list[tuple[Path, dict[str, Any]]] = []
    for file in sorted(directory.glob("*options.json")):
        try:
            options = read_json(file)
        except ValueError as error:
            raise InputError(file, f"not JSON ({error})", "the options of the model are needed", "mend it") from None
        if isinstance(options, dict) and {"lstm", "char_cnn"} <= options.keys():
            matches.append((file, options))
    return matches


def _read_arrays(directory: Path) -> dict[str, np.ndarray]:
    """Every array of the file that has those of a model."""
    try:
        import h5py
    except ImportError:
        todo = "pip install clozeworks[hdf5]"
        raise InputError(directory, "weights in HDF5", "h5py is needed to read them", todo) from None
    arrays: dict[str, np.ndarray] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            if item.nbytes > PACKED * os.path.getsize(item.file.filename):
                raise OSError(f"{name} would have {item.nbytes:,} bytes")
            arrays[name] = item[...]

    for path in sorted(directory.glob("*.hdf5")):
        try:
            with h5py.File(path, "r") as file:
                if "char_embed" in file and "RNN_0" in file:
                    file.visititems(visit)
                    return arrays
        except (
            OSError,
            RuntimeError,
            KeyError,
            ValueError,
            TypeError,
        ) as error:  # of the library, about a damaged file
            raise InputError(path, f"unreadable ({error})", "a whole HDF5 file is needed", "copy it again") from None
    raise InputError(directory, "no weights", "an .hdf5 file with char_embed and RNN_0 is needed", "put it there")


def _read_recipe(file: Path, options: dict[str, Any], vocab: int) -> Recipe:
    """The recipe that the options describe: characters, convolutions, highways, and LSTMs that read both ways."""

    def value(path: str, holds: Callable[[Any], bool], needed: str) -> Any:
        given: Any = options
        for name in path.split("."):
            given = given.get(name) if isinstance(given, dict) else None
        if not holds(given):
            raise InputError(file, f"{path} {given!r:.60}", f"{needed} is needed", "copy it again")
        return given

    def size(path: str, least: int = 1) -> int:
        return value(path, lambda x: type(x) is int and least <= x <= MOST, f"a whole number from {least} to {MOST:,}")

    def clip(path: str) -> float | None:
        holds = lambda x: x is None or (type(x) in (int, float) and 0 <= x <= MOST)  # noqa: E731
        return float(value(path, holds, f"a number up to {MOST:,}") or 0) or None

    cell = LSTM(size("lstm.dim"), clip=clip("lstm.cell_clip"), clip_out=clip("lstm.proj_clip"))
    skips = value("lstm.use_skip_connections", lambda x: x is None or type(x) is bool, "true or false")
    first = Block(cell, None, norm=None, dropout=0.1, residual=False)
    later = Block(cell, None, norm=None, dropout=0.0, residual=bool(skips))
    filters = value("char_cnn.filters", _are_filters, "a list of widths and numbers of filters")
    words = Characters(
        filters=tuple((wide, many) for wide, many in filters),
        width=size("char_cnn.embedding.dim"),
        highways=size("char_cnn.n_highway", 0) if "n_highway" in options["char_cnn"] else 0,
        activation=value("char_cnn.activation", lambda x: isinstance(x, str), "a name"),  # pyright: ignore[reportArgumentType]
        length=size("char_cnn.max_characters_per_token"),
    )
    embed = Embed(positions=None, segments=0, norm=None, dropout=0.1, words=words)
    depth = size("lstm.n_layers")
    stack = Bidirectional(depth, (first, *[later] * (depth - 1)), memory=1, dropout=0.1)
    encoder = Encoder(width=size("lstm.projection_dim"), vocab=vocab, embed=embed, stack=stack)
    return Recipe("elmo", encoder, Objective(FullSentences(length=512), None, ()), Train())


def _are_filters(given: Any) -> bool:
    pairs = given if isinstance(given, list) else [None]
    return all(isinstance(pair, list) and [type(x) for x in pair] == [int, int] for pair in pairs)


def _convert(recipe: Recipe, weights: dict[str, np.ndarray], tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Their arrays as our tensors, and how every word of the tokenizer is written."""
    words, stack = recipe.encoder.embed.words, recipe.encoder.stack
    assert isinstance(words, Characters)
    begin = "encoder.embed.words."
    names = [tokenizer.token(number) for number in range(tokenizer.size)]
    marks = {tokenizer.cls: OPENS, tokenizer.sep: CLOSES}
    arrays: dict[str, np.ndarray] = {begin + "spelling": spelled(names, words.length, marks)[0]}
    table = weights["char_embed"]
    others = np.zeros((CHARACTERS - len(table), table.shape[1]), table.dtype)
    arrays[begin + "letters"] = np.concatenate([others, table])
    for number in range(len(words.filters)):
        arrays[f"{begin}convolutions.{number}.weight"] = weights[f"CNN/W_cnn_{number}"][0].transpose(2, 1, 0)
        arrays[f"{begin}convolutions.{number}.bias"] = weights[f"CNN/b_cnn_{number}"]
    for number in range(words.highways):
        for ours, theirs in (("gate", "carry"), ("change", "transform")):
            arrays[f"{begin}highways.{number}.{ours}.weight"] = weights[f"CNN_high_{number}/W_{theirs}"].T
            arrays[f"{begin}highways.{number}.{ours}.bias"] = weights[f"CNN_high_{number}/b_{theirs}"]
    arrays[begin + "project.weight"] = weights["CNN_proj/W_proj"].T
    arrays[begin + "project.bias"] = weights["CNN_proj/b_proj"]
    for way, place in enumerate(("", "back.")):
        for layer in range(stack.depth):
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            ours = f"encoder.stack.{place}blocks.{layer}.mixer."
            both, width = _reorder_gates(weights[cell + "W_0"].T), recipe.encoder.width
            arrays[ours + "enter"], arrays[ours + "state"] = both[:, :width], both[:, width:]
            bias = _reorder_gates(weights[cell + "B"]).copy()
            bias[len(bias) // 4 : len(bias) // 2] += 1
            arrays[ours + "bias"], arrays[ours + "out"] = bias, weights[cell + "W_P_0"].T
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}


def _reorder_gates(rows: np.ndarray) -> np.ndarray:
    """[4C, ...] in our order of gates."""
    return np.concatenate([np.split(rows, 4)[gate] for gate in GATES])


def _read_tokenizer(directory: Path) -> Tokenizer:
    """Words between spaces, as the model was trained on; of a vocabulary file those that it has."""
    vocabulary = {name: number for number, name in enumerate(SPECIALS.values())}
    for file in sorted(directory.glob("*vocab*.txt"))[:1]:
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise InputError(file, f"not UTF-8 ({error.reason})", "one word a line is needed", "check it") from None
        for word in lines:
            if word.strip() and word.strip() not in vocabulary:
                vocabulary[word.strip()] = len(vocabulary)
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIALS["unk"]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    specials = [tokenizers.AddedToken(name, normalized=False, special=True) for name in SPECIALS.values()]
    inner.add_special_tokens(specials)
    return Tokenizer(inner, SPECIALS)
