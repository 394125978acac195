"""Static embeddings: an encoder made into a table of token vectors (Tulkens & van Dongen 2024, Model2Vec).

    v_t = pooled vector of [CLS] t [SEP]
    e_t = (a / (a + p_t)) P (v_t - mean)

P projects on the first principal components of all v. p_t is how often token t occurs by Zipf's law if ids follow
frequency, p_t ~ 1 / rank, and a / (a + p) is the weight of smooth inverse frequency (Arora et al. 2017). A text is the
mean of its tokens' vectors, of length 1. Special tokens, unknown ones and those that a vocabulary keeps unused have
zeros: they turn no vector. O(V) short texts once; then a text costs a look-up.
"""

import dataclasses
import re

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import tensors
from clozeworks.exchange.onnx.graph import pool
from clozeworks.exchange.onnx.padded_rows import read_rows
from clozeworks.model import Encoder, Model
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.pooling import Pooling
from clozeworks.nn.stack import Stack
from clozeworks.recipe import Recipe, assemble

DIMENSIONS = 256
SMOOTHING = 1e-4  # a of the weights
ROWS = 1024  # tokens that are read together
TABLE = "encoder.embed.words.table.weight"
UNUSED = re.compile(r"\[unused\d+\]")


def make_static(
    model: Model, recipe: Recipe, tokenizer: Tokenizer | None, dimensions: int = DIMENSIONS
) -> tuple[Model, Recipe]:
    """The table as a model of its own, and the recipe that builds it."""
    if tokenizer is None:
        raise InputError(recipe.name, "no tokenizer", "token vectors are of its tokens", "put tokenizer.json beside it")
    if recipe.decoder is not None:
        needed = "its vectors are for a decoder to attend to"
        raise RecipeError(f"{recipe.name}.decoder", "Decoder", needed, "take an encoder")
    if recipe.encoder.embed.words is not None and recipe.encoder.embed.words.scored is None:
        needed = "words that it never met have vectors too, and no table has those"
        raise RecipeError(f"{recipe.name}.encoder.embed.words", "Characters", needed, "take another encoder")
    silent = [index for index in range(tokenizer.size) if _is_silent(tokenizer, index)]
    spoken = np.setdiff1d(np.arange(tokenizer.size), silent)
    if dimensions < 1 or len(spoken) < 2:
        given = f"{dimensions} dimensions of {len(spoken)} tokens"
        raise InputError(recipe.name, given, "at least 1 of 2 are needed", f"use {DIMENSIONS}")
    vectors = read_tokens(model, recipe, tokenizer, spoken)
    reduced = project(vectors, dimensions) * weigh(len(spoken))[:, None]
    table = np.zeros((recipe.encoder.vocab, reduced.shape[1]), np.float32)
    table[spoken] = reduced
    own = describe(recipe, table.shape[1])
    static = assemble(own)
    tensors.assign(static, {TABLE: torch.from_numpy(table)}, recipe.name)
    return static.eval(), own


def describe(recipe: Recipe, width: int) -> Recipe:
    """An encoder that is a table of words, whose mean makes vectors of length 1."""
    embed = Embed(positions=None, segments=0, norm=None, dropout=0.0)
    stack = Stack(0, Block(Attention(1), None, norm=None, dropout=0.0))
    return dataclasses.replace(
        recipe,
        name=f"{recipe.name}-static",
        encoder=Encoder(width, recipe.encoder.vocab, embed, stack, init=recipe.encoder.init),
        objective=dataclasses.replace(recipe.objective, corruption=None, losses=()),
        train=dataclasses.replace(recipe.train, phases=()),
        distil=None,
        finetune=None,
        pooling=Pooling("mean", normalise=True),
        start=(),
    )


@torch.no_grad()
def read_tokens(model: Model, recipe: Recipe, tokenizer: Tokenizer, ids: np.ndarray) -> np.ndarray:
    """[n, D]: of each token the vector of a text that is nothing else."""
    opens, closes = tokenizer.need(recipe.opener), tokenizer.need("sep")
    before, after = ([], [closes, opens]) if tokenizer.class_last else ([opens], [closes])
    pooling, parts = recipe.pooling or Pooling(), []
    device = next(model.parameters()).device
    for some in np.array_split(ids, -(-len(ids) // ROWS)):
        rows = torch.tensor([[*before, token, *after] for token in some.tolist()], device=device)
        mask = torch.ones_like(rows)
        hidden, _ = read_rows(model, recipe, tokenizer, rows, mask, _segments(rows, recipe, tokenizer))
        parts.append(pool(hidden.last, mask, hidden.pooled, dataclasses.replace(pooling, normalise=False)))
    return torch.cat(parts).cpu().numpy()


def project(vectors: np.ndarray, dimensions: int) -> np.ndarray:
    """On the first principal components, each with the sign of its largest number: [n, D] -> [n, at most D]."""
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    chosen = directions[:, ::-1][:, :dimensions]
    chosen = chosen * np.sign(chosen[np.abs(chosen).argmax(0), np.arange(chosen.shape[1])])
    return centred @ chosen


def weigh(count: int) -> np.ndarray:
    """[n] a / (a + p) of tokens in the order of their frequency."""
    chance = 1 / np.arange(2, count + 2)
    return SMOOTHING / (SMOOTHING + chance / chance.sum())


def _segments(rows: Tensor, recipe: Recipe, tokenizer: Tokenizer) -> Tensor | None:
    """A [CLS] that comes last has a segment of its own."""
    if recipe.encoder.embed.segments or not tokenizer.class_last:
        return None
    return torch.where(rows == tokenizer.need("cls"), 2, 0)


def _is_silent(tokenizer: Tokenizer, index: int) -> bool:
    """Whether a token says nothing: a special, the unknown one, or one that the vocabulary keeps for later."""
    return index in tokenizer.special_ids or UNUSED.fullmatch(tokenizer.token(index)) is not None
