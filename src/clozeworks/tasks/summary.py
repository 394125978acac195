"""One vector for a whole example."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Count, Rate
from clozeworks.core.dropout import dropout
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.core.token_info import PADDING
from clozeworks.nn.activation import FUNCTIONS, Activation
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.pooling import pool_tokens
from clozeworks.tasks.encoder_recipe import EncoderRecipe
from clozeworks.tasks.template import InputTemplate

HIDDEN = 50  # units of the head of recurrent models (Howard & Ruder 2018, 4.1)


@dataclass(slots=True)
class Summary(Spec):
    """s = dropout(activation(W h + b)), h the vector of a special token, or the mean of all, or three side by side.

    These, `concat`, are the last token, of each unit the largest, and the mean: [N, 3D] (Howard & Ruder 2018, 3.3).

    The layer W is the encoder's `pooler`, as it was pretrained; the task's `own`, fresh; or none, s = dropout(h). With
    `early`, h is dropped as well (Liu et al. 2019, code). The last token of a model that reads one way has seen all
    (Radford et al. 2018, 3.2). `width`: of s, where its own layer W makes it another than that of h.
    """

    place: Literal["first", "last", "mean", "concat"] = "first"
    dense: Literal["pooler", "own"] | None = "pooler"
    activation: Activation = "tanh"
    dropout: Rate = 0.1
    early: bool = False
    width: Count | None = None

    def check(self, where: str) -> None:
        if self.dense == "pooler" and self.place != "first":
            needed = "the pooler reads the first token"
            raise RecipeError(f"{where}.dense", self.dense, needed, "use own, or place=first")
        if self.width is not None and (self.dense != "own" or self.width < 1):
            raise RecipeError(f"{where}.width", self.width, "only a layer of its own changes the width", "use None")

    def in_width(self, width: int) -> int:
        """Of h, for vectors of this width."""
        return 3 * width if self.place == "concat" else width

    def out_width(self, width: int) -> int:
        """Of s, for vectors of this width."""
        return self.width or self.in_width(width)

    def read_positions(self, batch: Batch) -> Tensor | None:
        """Flat offsets of the tokens that it reads; None: all."""
        if self.place in ("mean", "concat"):
            return None
        assert batch.lasts is not None
        return batch.firsts if self.place == "first" else batch.lasts

    def build(self, width: int) -> "SummaryLayer":
        return SummaryLayer(self, width)


def choose_summary(recipe: EncoderRecipe, template: InputTemplate, pooled: bool) -> Summary:
    """What stands for an example in this family; `pooled`: the encoder has a pooler that was pretrained."""
    width, stack = recipe.encoder.width, recipe.encoder.stack
    if recipe.recurrent or stack.directions == 2:  # no token of a text has read all of it both ways
        return summarize_all()
    if recipe.reading == "causal":
        return Summary("last", None)
    if recipe.pooling is not None and recipe.pooling.mode == "mean":  # its vectors of texts were trained so
        return Summary("mean", None)
    if pooled:
        return Summary()
    if recipe.brief:  # no token of such an encoder has learned to stand for its text
        return Summary("mean", None)
    own = width if stack.out_width(width) > width else None
    return Summary(template.summary, "own", "tanh", early=template.summary == "first", width=own)


def summarize_all() -> Summary:
    """Of what recurrent layers say of all tokens (Howard & Ruder 2018, 3.3)."""
    return Summary("concat", "own", "relu", early=True, width=HIDDEN)


class SummaryLayer(nn.Module):
    """One vector of each example, from the vectors of its tokens."""

    def __init__(self, spec: Summary, width: int):
        super().__init__()
        self.spec = spec
        self.dense = Linear(spec.in_width(width), spec.out_width(width)) if spec.dense == "own" else None

    def forward(self, read: Tensor, hidden: Hidden, batch: Batch) -> Tensor:
        """read [B, L, D], what a task reads of the layers -> [N, D'], one an example."""
        spec, key = self.spec, None if hidden.key is None else hidden.key.at("summary")
        places = spec.read_positions(batch)
        places = batch.firsts if places is None else places
        if key is not None:
            key = key.tokens(places, batch.tokens.numel())
        if spec.dense == "pooler":
            assert hidden.pooled is not None
            return dropout(hidden.pooled, spec.dropout, key)
        x = self.picked(read, places, batch)
        if spec.early:
            x = dropout(x, spec.dropout, None if key is None else key.at("early"))
        return dropout(self.mapped(x), spec.dropout, key)

    def picked(self, read: Tensor, places: Tensor, batch: Batch) -> Tensor:
        """[B, L, D] -> h [N, D], or [N, 3D]."""
        if self.spec.place == "mean":
            return mean(read, batch)
        if self.spec.place != "concat":
            return read.flatten(0, 1).index_select(0, places)
        assert batch.lasts is not None
        last = read.flatten(0, 1).index_select(0, batch.lasts)
        return torch.cat([last, largest(read, batch), mean(read, batch)], -1)

    def mapped(self, x: Tensor) -> Tensor:
        """h [..., D] -> s: through the layer of its own, where it has one."""
        return x if self.dense is None else FUNCTIONS[self.spec.activation](self.dense(x))


def mean(x: Tensor, batch: Batch) -> Tensor:
    """[B, L, D] -> [N, D]: over the tokens of each example, its specials too."""
    if _is_padded(batch):
        return pool_tokens(x, batch.token_info.document != PADDING, None, "mean")
    owner, inside = _inside(x, batch)
    total = torch.zeros(len(batch.firsts), x.shape[-1], dtype=x.dtype, device=x.device).index_add(0, owner, inside)
    return total / torch.bincount(owner, minlength=len(total))[:, None]


def largest(x: Tensor, batch: Batch) -> Tensor:
    """[B, L, D] -> [N, D]: of each unit the largest value at a token of the example."""
    if _is_padded(batch):
        return pool_tokens(x, batch.token_info.document != PADDING, None, "max")
    owner, inside = _inside(x, batch)
    lowest = torch.full((len(batch.firsts), x.shape[-1]), -torch.inf, dtype=x.dtype, device=x.device)
    return lowest.scatter_reduce(0, owner[:, None].expand_as(inside), inside, "amax")


def _is_padded(batch: Batch) -> bool:
    """Whether a row is an example: nobody says where documents begin."""
    return not batch.layout.starts


def _inside(x: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The example of each token that is no padding, [T], and its vector, [T, D]."""
    document = batch.token_info.document.flatten()
    real = document != PADDING
    return document[real], x.flatten(0, 1)[real]
