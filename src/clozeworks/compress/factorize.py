"""A table of words as the product of two narrow matrices."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from clozeworks.compress.data import Data
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.compress.structure import choose, copy_recipe, join_blocks, parameters
from clozeworks.compress.vocabulary import count_tokens
from clozeworks.core.bounds import Count
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.bundle import Bundle
from clozeworks.nn.embed import Embed
from clozeworks.objectives.objective import Loss
from clozeworks.recipe import Recipe


@dataclass(slots=True)
class FactorizeEmbedding(Step):
    """T [V, D] becomes A B with A [V, E] and B [E, D], E = `rank`: V E + E D numbers (Lan et al. 2019, 3.1).

    T = U S V^T, A = U_E S_E^(1/2), B = S_E^(1/2) V_E^T: of all products of rank E the nearest to T, by Eckart and
    Young; what is left out is |T - A B|_F^2, the sum of the other squared singular values (`weigh` = equally). With
    frequency the error of a word counts as often as the data has it, and once more: C T = U S V^T with
    C^2 = diag(1 + count), and A B = T V_E V_E^T, the nearest by |C (T - A B)|_F. On the way in x = B^T a_word (+ 0); on
    the way out a head that is tied scores A (B h), so that both ways have the same table; the two B are one at first,
    and learn apart. Positions, segments and the norm stay as wide as the model.
    """

    name: ClassVar[str] = "table"
    main: ClassVar[str | None] = "rank"
    rank: Count = 128
    weigh: Literal["frequency", "equally"] = "frequency"

    def apply(self, bundle: B, data: Data) -> B:
        """Factor each table that is read, and give the heads tied to it the way back."""
        recipe, weights = copy_recipe(bundle), parameters(bundle.model)
        counts = self._counts(bundle, data) if self.weigh == "frequency" else None
        own = recipe.decoder is not None and recipe.decoder.embed is not None
        sides = ["encoder", "decoder"] if own else ["encoder"]
        for side in sides:
            part = recipe.encoder if side == "encoder" else recipe.decoder
            assert part is not None
            assert part.embed is not None
            self._check(recipe, f"{recipe.name}.{side}.embed", part.embed)
            table, back = self._factors(weights[f"{side}.embed.words.table.weight"], counts)
            weights[f"{side}.embed.words.table.weight"] = table
            weights[f"{side}.embed.project.weight"] = back.t()
            weights[f"{side}.embed.project.bias"] = torch.zeros(recipe.encoder.width)
            part.embed.width, part.embed.narrow, part.embed.project = self.rank, "words", True
            if side == sides[-1]:
                recipe.objective.losses = tuple(
                    _head(recipe, f"{recipe.name}.objective.losses.{index}", loss, back, weights)
                    for index, loss in enumerate(recipe.objective.losses)
                )
        join_blocks(recipe)
        return rebuild(bundle, recipe, choose(recipe, weights))

    def _check(self, recipe: Recipe, where: str, embed: Embed) -> None:
        if embed.words is not None:
            needed = "one table of words is needed"
            raise RecipeError(f"{where}.words", type(embed.words).__name__, needed, "use another step")
        if embed.project or embed.width not in (None, recipe.encoder.width):
            needed = f"its table is a product already, {embed.width} wide"
            raise RecipeError(f"{where}.width", self.rank, needed, "factorize the model that it was made of")
        most = min(recipe.encoder.width, recipe.encoder.vocab)
        if self.rank > most:
            raise RecipeError(f"{where}.width", self.rank, f"a table of this size has rank {most}", "use less")

    def _counts(self, bundle: Bundle, data: Data) -> Tensor:
        """How often each token is read."""
        counts = None if bundle.tokenizer is None else count_tokens(bundle, data, bundle.tokenizer)
        if counts is None or not counts.any():
            needed = "how frequent words are is known from a text and a tokenizer"
            raise InputError("table", "nothing to count", needed, "give both, or weigh equally")
        return torch.from_numpy(counts[: bundle.recipe.encoder.vocab])

    def _factors(self, table: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """A [V, E] and B [E, D], each about as large as the other; of full rank, the table itself."""
        if self.rank == table.shape[1]:
            return table, torch.eye(self.rank)
        exact = table.double()
        weighed = exact if counts is None else exact * (1 + counts[:, None]).sqrt()
        _, values, right = torch.linalg.svd(weighed, full_matrices=False)
        right = right[: self.rank]
        root = (values[: self.rank] if counts is None else (exact @ right.t()).norm(dim=0)).clamp(min=1e-12).sqrt()
        return (exact @ right.t() / root).float(), (root[:, None] * right).float()


def _head(recipe: Recipe, where: str, loss: Loss, back: Tensor, weights: dict[str, Tensor]) -> Loss:
    """The loss whose head scores A (B h) instead of T h; one that cannot is refused."""
    narrow, name = loss.narrowed(where)
    if name is not None:
        name, width = f"heads.{loss.name}.{name}", recipe.encoder.width
        if name in weights:  # it has led from a wider model to the table before
            weights[name] = back @ weights[name]
            return narrow
        if recipe.top.out_width(width) != width:
            needed = f"its head reads vectors of width {recipe.top.out_width(width)}, and words have {width}"
            raise RecipeError(where, type(loss).__name__, needed, "use another step")
        weights[name] = back
    return narrow
