"""Weights as int8, but for the parts that would change the vectors most."""

import copy
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from clozeworks.compress.data import Data
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.core.bounds import Bound, Natural
from clozeworks.core.errors import InputError
from clozeworks.exchange.bundle import Bundle
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.int8.parts import Int8, quantizable, refuse_int8
from clozeworks.nn.int8.products import quantize_rows
from clozeworks.recipe import Recipe, assemble

TEXTS = 256  # that vectors are compared of
RANKED = 48  # that parts are compared by, the worst ones of those
FEWEST = 8  # of which the smallest cosine says something


@dataclass(slots=True)
class Quantize(Step):
    """Linear parts and the table of words as int8 with a scale for each row of a matrix, activations for each token.

        W8 = round(W / s),  s = max |W| / 127 of the row        (Jacob et al. 2018; rows: Krishnamoorthi 2018)

    Where there are texts, the vectors of up to 256 are compared with those of the fp32 model. While their smallest
    cosine is below `cosine`, the part that brings it highest when it is fp32 stays so, up to `most` of them: parts are
    ranked once, each fp32 by itself, on the texts that suffer most, and the best set is kept. Without texts everything
    is int8. A quarter of the bytes; nothing is trained.
    """

    name: ClassVar[str] = "int8"
    main: ClassVar[str | None] = "cosine"
    structural: ClassVar[bool] = False
    teachable: ClassVar[bool] = False
    cosine: Annotated[float, Bound(0, 1)] = 0.99
    most: Natural = 4

    def apply(self, bundle: B, data: Data) -> B:
        """The model as int8; one that is int8 already is refused."""
        recipe = bundle.recipe
        refuse_int8(recipe.name, recipe.encoder.int8 is not None, "rounding to int8")
        if not quantizable(bundle.model):
            needed, todo = "it has no linear part and no table of words", "use another step"
            raise InputError(recipe.name, "nothing to make int8", needed, todo)
        quantized = quantize(bundle)
        texts = [text for text in islice(data.all_texts(recipe), 4 * TEXTS) if text.strip()][:TEXTS]
        if not texts or not self.most or bundle.tokenizer is None:
            return quantized
        if len(texts) < FEWEST:
            needed = f"the smallest cosine of fewer than {FEWEST} says nothing"
            raise InputError("data", f"{len(texts)} texts", needed, "give more, or none")
        before = _vectors(bundle, texts)
        cosines = _cosines(before, _vectors(quantized, texts))
        if cosines.min() >= self.cosine:
            return quantized
        worst = cosines.argsort()[:RANKED]
        ranked = rank_parts(bundle, [texts[n] for n in worst], before[worst])
        fp32, best = (), float(cosines.min())
        for names, _ in ranked[: self.most]:
            fp32 += names
            candidate = quantize(bundle, fp32)
            smallest = float(_cosines(before, _vectors(candidate, texts)).min())
            if smallest > best:  # one more in fp32 may also make it worse: what is rounded elsewhere no longer cancels
                quantized, best = candidate, smallest
            if best >= self.cosine:
                break
        return quantized


def quantize(bundle: B, fp32: tuple[str, ...] = ()) -> B:
    """The same model as int8, except for these parts; the recipe says so."""
    recipe = copy.deepcopy(bundle.recipe)
    recipe.encoder.int8 = Int8(fp32)
    return rebuild(bundle, recipe, _weights(bundle, recipe))


def _weights(bundle: Bundle, recipe: Recipe) -> dict[str, Tensor]:
    """The tensors of the new model, each shared one once."""
    old = {name: each.detach().cpu() for name, each in bundle.model.named_parameters(remove_duplicate=False)}
    with torch.device("meta"):
        wanted = [name for name, _ in assemble(recipe).named_parameters()]
    new: dict[str, Tensor] = {}
    for name in wanted:
        part, _, last = name.rpartition(".")
        if name in old:
            new[name] = old[name]
        elif last == "quantized":
            new[name], new[f"{part}.scale"] = quantize_rows(old[f"{part}.weight"].float())
    return new


def rank_parts(bundle: Bundle, texts: list[str], before: np.ndarray) -> list[tuple[tuple[str, ...], float]]:
    """The smallest cosine with `before` when one part stays fp32 and all others are int8, the best first; parts that
    share their weights are one, with all its names."""
    parts: dict[int, tuple[str, ...]] = {}
    for name, part in quantizable(bundle.model).items():
        parts[id(part.weight)] = (*parts.get(id(part.weight), ()), name)
    cosines = {
        names: float(_cosines(before, _vectors(quantize(bundle, names), texts)).min()) for names in parts.values()
    }
    return sorted(cosines.items(), key=lambda item: -item[1])


def _vectors(bundle: Bundle, texts: list[str]) -> np.ndarray:
    return TextEncoder(bundle.model, bundle.tokenizer, bundle.recipe).encode(texts)


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(1) / np.maximum(lengths, 1e-12)
