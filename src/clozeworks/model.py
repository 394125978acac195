"""Encoder and model: embed -> stack -> losses, with named outputs."""

from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from clozeworks.batch import Batch, Context, Hidden, Side, Taps
from clozeworks.errors import RecipeError
from clozeworks.key import Key
from clozeworks.nn.embed import Embed
from clozeworks.nn.linear import Linear
from clozeworks.nn.mixer import BiasLayer
from clozeworks.nn.stack import Stack
from clozeworks.nn.two_stream import TwoStreamLayer
from clozeworks.objectives.objective import Loss, LossLayer
from clozeworks.spec import Spec


@dataclass(slots=True)
class Pooler(Spec):
    """pooled = tanh(W h_first + b), one vector an example (Devlin et al. 2018)."""

    def build(self, width: int) -> "PoolerLayer":
        return PoolerLayer(width)


class PoolerLayer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.dense = Linear(width, width)

    def forward(self, first: Tensor) -> Tensor:
        return torch.tanh(self.dense(first))


@dataclass(slots=True)
class Encoder(Spec):
    """Everything between token ids and hidden states."""

    width: int
    vocab: int
    embed: Embed
    stack: Stack
    pooler: Pooler | None = None
    init: float = 0.02  # standard deviation of fresh weights

    def check(self, where: str) -> None:
        for name, most in (("width", 1 << 17), ("vocab", 1 << 31)):
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise RecipeError(f"{where}.{name}", value, f"1 to {most:,} is possible", "change it")
        for mixer in self.stack.mixers():
            heads = getattr(mixer, "heads", 1)
            if self.width % heads:
                near = [n for n in range(1, self.width + 1) if self.width % n == 0]
                near = sorted(sorted(near, key=lambda n: abs(n - heads))[:3])
                raise RecipeError(
                    f"{where}.stack.block.mixer.heads",
                    heads,
                    f"width {self.width} is not divisible by it",
                    "use " + " or ".join(map(str, near)),
                )

    def build(self, pooler: bool = True) -> "EncoderLayer":
        return EncoderLayer(self, pooler)


class EncoderLayer(nn.Module):
    def __init__(self, spec: Encoder, pooler: bool = True):
        super().__init__()
        self.embed = spec.embed.build(spec.width, spec.vocab)
        self.stack = spec.stack.build(spec.width)
        self.width = spec.stack.out_width(spec.width)
        self.pooler = spec.pooler.build(self.width) if spec.pooler and pooler else None

    def forward(
        self, tokens: Tensor, side: Side, context: Context, firsts: Tensor | None = None, layers: bool = False
    ) -> Hidden:
        """tokens [B, L] -> Hidden; `firsts` [N] are the flat offsets of the tokens to pool."""
        hidden = self.stack(self.embed(tokens, side, context), context, layers)
        if self.pooler is not None and firsts is not None:
            hidden.pooled = self.pooler(hidden.last.flatten(0, 1).index_select(0, firsts))
        return hidden


@dataclass(slots=True)
class Output:
    """Sums by name: losses, and metrics with the loss whose count divides them."""

    hidden: Hidden
    losses: dict[str, Tensor] = field(default_factory=dict)
    metrics: dict[str, tuple[str, Tensor]] = field(default_factory=dict)


class Model(nn.Module):
    """An encoder with the heads it is pretrained with.

    A pooler is kept only where something reads it: a loss, or the caller of a bare encoder.
    """

    def __init__(self, encoder: Encoder, losses: tuple[Loss, ...] = ()):
        super().__init__()
        pooled = not losses or any("pooled" in loss.reads for loss in losses)
        self.encoder = encoder.build(pooler=pooled)
        self.heads = nn.ModuleDict({loss.name: loss.build(self.encoder.width, self.encoder.embed) for loss in losses})
        self.specs = losses
        for head in self.heads.values():
            cast(LossLayer, head).meet(cast(dict[str, LossLayer], self.heads))

    def forward(self, batch: Batch, key: Key | None = None) -> Output:
        specs = self.computed(batch)
        hidden = self.read(batch, specs, key=key)
        output = Output(hidden)
        names = {spec.name for spec in self.specs}
        # Who reads another's head goes first: it may want more of it, which the other then need not compute again.
        for spec in sorted(specs, key=lambda spec: not spec.reads & names):
            output.losses[spec.name], metrics = self.heads[spec.name](hidden, batch)
            output.metrics |= {metric: (spec.name, value) for metric, value in metrics.items()}
        return output

    def computed(self, batch: Batch) -> tuple[Loss, ...]:
        """The losses that this batch has all for: without a teacher, those that need none."""
        return tuple(loss for loss in self.specs if batch.teacher is not None or "teacher" not in loss.reads)

    def read(self, batch: Batch, losses: tuple[Loss, ...], depth: int | None = None, key: Key | None = None) -> Hidden:
        """As much of a pass as these losses read; `depth` is that of the student where this model is the teacher."""
        of = len(self.encoder.stack.blocks)
        needs = frozenset[str]().union(*(loss.needs for loss in losses))
        blocks = frozenset(block for loss in losses for block in loss.blocks(depth or of, of))
        taps = Taps(needs & {"scores", "values"}, blocks) if blocks else None
        context = batch.context(key=key, places=places(losses, batch), taps=taps)
        pools = not losses or any("pooled" in loss.reads for loss in losses)
        firsts = batch.firsts if pools else None
        hidden = self.encoder(batch.tokens, batch.side, context, firsts, layers="layers" in needs)
        hidden.taps = taps.kept if taps is not None else {}
        return hidden

    def count(self, batch: Batch) -> dict[str, int]:
        """Predictions of each loss in the batch."""
        return {loss.name: loss.count(batch) for loss in self.specs}

    def head(self, name: str) -> LossLayer | None:
        return cast(LossLayer | None, dict(self.heads.named_children()).get(name))


def places(losses: tuple[Loss, ...], batch: Batch) -> Tensor | None:
    """The tokens that some loss reads, each once; None: any may be read."""
    found = [loss.places(batch) for loss in losses]
    chosen = [each for each in found if each is not None]
    if not chosen or len(chosen) < len(found):
        return None
    joined = torch.cat(chosen)
    return joined if len(chosen) == 1 or joined.is_meta else joined.unique()


def initialise(model: nn.Module, deviation: float, seed: int) -> None:
    """Fresh weights, the same for a seed on every machine: matrices, what is added to scores and what a second stream
    begins as N(0, deviation), norms 1, biases 0."""
    generator = torch.Generator().manual_seed(seed)
    done: set[int] = set()
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)) and id(module.weight) not in done:
            done.add(id(module.weight))
            with torch.no_grad():
                module.weight.normal_(0.0, deviation, generator=generator)
        if isinstance(module, BiasLayer | TwoStreamLayer):
            for parameter in module.parameters(recurse=False):
                if id(parameter) not in done:
                    done.add(id(parameter))
                    nn.init.normal_(parameter, 0.0, deviation, generator)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
