"""Recurrent layers of a task's own, over a text and over what a model says of it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Count, Natural, Rate
from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey, dropout
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.core.token_info import TokenInfo
from clozeworks.nn.bidirectional import Bidirectional
from clozeworks.nn.block import Block
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.mixers.lstm import LSTM

Place = Literal["input", "between", "output"]


@dataclass(slots=True)
class TaskEncoder(Spec):
    """Two layers that read both ways, with the features of a model beside what they read (Peters et al. 2017, 2018).

    h_1 = reader_1([x; words]),  h_2 = reader_2([h_1; features]),  out = h_2

    x is what the model looks words up as, its first layer, and `words` a table of the task's own, of that width, which
    is learned (0: none). The features of the model come in `between` the layers (Peters et al. 2017: TagLM), at the
    `input`, at the `output`, or at several of these (Peters et al. 2018, 3.3). `dropout` is that of what each layer
    reads. A reader is a projection to `cells` and an LSTM of as many each way.
    """

    untraceable: ClassVar[str | None] = "it reads a token after another, as many steps as the text is long"
    cells: Count = 128
    words: Natural = 50
    features: tuple[Place, ...] = ("between",)
    dropout: Rate = 0.25

    def check(self, where: str) -> None:
        if len(set(self.features)) < len(self.features):
            raise RecipeError(f"{where}.features", list(self.features), "each place may stand once", "remove one")

    def out_width(self, width: int) -> int:
        """Of what it gives, for features of this width."""
        return 2 * self.cells + (width if "output" in self.features else 0)

    def build(self, width: int, first: int, vocab: int) -> "TaskEncoderLayer":
        """`width` of the features, `first` of what words are looked up as."""
        return TaskEncoderLayer(self, width, first, vocab)


class TaskEncoderLayer(nn.Module):
    """Two bidirectional LSTMs over the words, with the features of the encoder beside them."""

    def __init__(self, spec: TaskEncoder, width: int, first: int, vocab: int):
        super().__init__()
        self.features, self.rate = spec.features, spec.dropout
        self.words = nn.Embedding(vocab, spec.words) if spec.words else None
        block = Block(LSTM(), None, norm=None, residual=False, dropout=0.0)
        enters = [first + spec.words + (width if "input" in spec.features else 0)]
        enters.append(2 * spec.cells + (width if "between" in spec.features else 0))
        self.projections = nn.ModuleList(Linear(size, spec.cells) for size in enters)
        self.readers = nn.ModuleList(Bidirectional(1, block).build(spec.cells) for _ in enters)

    def forward(self, hidden: Hidden, features: Tensor, batch: Batch) -> Tensor:
        """Features [B, L, F] -> [B, L, `out_width`]."""
        x = [hidden.layers[0]]
        if self.words is not None:
            known = batch.tokens < len(self.words.weight)  # a word that came later has no vector of the task's own
            x.append(self.words(torch.where(known, batch.tokens, 0)) * known[..., None])
        if "input" in self.features:
            x.append(features)
        read = self._read(0, x, batch, hidden.key)
        read = self._read(1, [read, features] if "between" in self.features else [read], batch, hidden.key)
        return torch.cat([read, features], -1) if "output" in self.features else read

    def _read(self, layer: int, parts: list[Tensor], batch: Batch, key: DropoutKey | None) -> Tensor:
        own = None if key is None else key.at("readers", layer)
        x = self.projections[layer](dropout(torch.cat(parts, -1), self.rate, own))
        side = TokenInfo.make(batch.token_info.position, batch.token_info.document, "full")
        borders = batch.layout if batch.layout.starts else None
        return self.readers[layer](x, Context.make(side, side, "full", layout=borders)).last
