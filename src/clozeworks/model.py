"""Encoder and model: embed -> stack -> losses, or a decoder before these, with named outputs."""

from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import torch
from torch import Tensor, nn

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Bound, Count, NonNegative
from clozeworks.core.context import AttentionCapture, Context, Source
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec, walk
from clozeworks.core.token_info import PADDING, TokenInfo
from clozeworks.nn.decoder import Decoder, DecoderLayer, crosses
from clozeworks.nn.embed import Embed
from clozeworks.nn.init import CustomInit
from clozeworks.nn.int8.parts import Int8
from clozeworks.nn.kernels.linear import Linear
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.stack import Stack, StackLayer
from clozeworks.objectives.objective import Loss, LossLayer


@dataclass(slots=True)
class Pooler(Spec):
    """pooled = tanh(W h_first + b), one vector an example (Devlin et al. 2018)."""

    def build(self, width: int) -> "PoolerLayer":
        return PoolerLayer(width)


class PoolerLayer(nn.Module):
    """Weights of `Pooler`: [N, D] of first tokens -> [N, D]."""

    def __init__(self, width: int):
        super().__init__()
        self.dense = Linear(width, width)

    def forward(self, first: Tensor) -> Tensor:
        return torch.tanh(self.dense(first))


@dataclass(slots=True)
class Encoder(Spec):
    """Everything between token ids and hidden states."""

    width: Annotated[int, Bound(1, 1 << 17)]
    vocab: Count
    embed: Embed
    stack: Stack
    pooler: Pooler | None = None
    init: NonNegative = 0.02  # standard deviation of fresh weights
    int8: Int8 | None = None  # weights that are stored and multiplied as int8

    def check(self, where: str) -> None:
        self.embed.fit(f"{where}.embed", self.width, self.vocab)
        self.stack.fit(f"{where}.stack", self.width)
        alone = self.embed.positions is None and not self.embed.segments
        if self.embed.word_dropout and alone and any(isinstance(part, LayerNorm) for _, part in walk(self)):
            needed = (
                "a word that is dropped is zeros with nothing added, and a norm divides by how much a vector varies"
            )
            todo = "use 0, or positions, or no norms"
            raise RecipeError(f"{where}.embed.word_dropout", self.embed.word_dropout, needed, todo)

    def check_readers(self, where: str, losses: tuple[Loss, ...], decoder: Decoder | None) -> None:
        """Raise `RecipeError` if it cannot give what the losses, or the decoder before them, read of it."""
        if any(crosses(self.stack)):
            needed = "an encoder has nothing but its own rows to attend to"
            raise RecipeError(f"{where}.stack.block.cross", "a mixer", needed, "use None, and a decoder for it")
        pools = any(loss.pools for loss in losses)
        if decoder is None:
            if pools and self.pooler is None:
                raise RecipeError(f"{where}.pooler", None, "a loss reads the pooled vector", "use Pooler()")
            return
        decoder.check_source(f"{where}.stack", self.stack)
        if pools or self.pooler is not None:
            needed = "losses read what the decoder writes, where nothing is pooled"
            raise RecipeError(f"{where}.pooler", self.pooler, needed, "use None, and other losses")

    def build(self, pooler: bool = True) -> "EncoderLayer":
        return EncoderLayer(self, pooler)


class EncoderLayer(nn.Module):
    """Weights of `Encoder`: token ids -> `Hidden`."""

    def __init__(self, spec: Encoder, pooler: bool = True):
        super().__init__()
        self.embed = spec.embed.build(spec.width, spec.vocab)
        self.stack = spec.stack.build(spec.width)
        self.width = spec.stack.out_width(spec.width)
        self.pooler = spec.pooler.build(self.width) if spec.pooler and pooler else None

    def forward(
        self, tokens: Tensor, side: TokenInfo, context: Context, firsts: Tensor | None = None, layers: bool = False
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
    """An encoder with the heads it is pretrained with; with a decoder, the heads read what that one gives.

    A pooler is kept only where something reads it: a loss, or the caller of a bare encoder.
    """

    def __init__(self, encoder: Encoder, losses: tuple[Loss, ...] = (), decoder: Decoder | None = None):
        super().__init__()
        pooled = not losses or any(loss.pools for loss in losses)
        self.encoder = encoder.build(pooler=pooled)
        self.decoder = decoder.build(self.encoder.width, encoder.vocab, self.encoder.embed) if decoder else None
        self.heads = nn.ModuleDict({loss.name: loss.build(self.top.width, self.top.embed) for loss in losses})
        self.specs = losses
        self.frozen = False  # the encoder gives features, and learns nothing
        for head in self.heads.values():
            cast(LossLayer, head).connect(cast(dict[str, LossLayer], self.heads))
        if encoder.int8 is not None:
            encoder.int8.apply(self)

    @property
    def top(self) -> "EncoderLayer | DecoderLayer":
        """What the heads read: the decoder where there is one."""
        return self.encoder if self.decoder is None else self.decoder

    @property
    def stacks(self) -> list[StackLayer]:
        return [part.stack for part in (self.encoder, self.decoder) if part is not None]

    def forward(self, batch: Batch, key: DropoutKey | None = None) -> Output:
        specs = self.computed(batch)
        hidden = self.read(batch, specs, key=key)
        output = Output(hidden)
        names = {spec.name for spec in self.specs}
        # Who reads another's head goes first: it may want more of it, which the other then need not compute again.
        for spec in sorted(specs, key=lambda spec: not spec.needs.reads & names):
            output.losses[spec.name], metrics = self.heads[spec.name](hidden, batch)
            output.metrics |= {metric: (spec.name, value) for metric, value in metrics.items()}
        return output

    def computed(self, batch: Batch) -> tuple[Loss, ...]:
        """The losses that this batch has all for: without a teacher, those that need none."""
        return tuple(loss for loss in self.specs if loss.computed(batch))

    def read(
        self, batch: Batch, losses: tuple[Loss, ...], depth: int | None = None, key: DropoutKey | None = None
    ) -> Hidden:
        """As much of a pass as these losses read; `depth` is that of the student where this model is the teacher."""
        of = len(self.top.stack.blocks)
        needs = frozenset[str]().union(*(loss.needs.hidden for loss in losses))
        blocks = frozenset(block for loss in losses for block in loss.blocks(depth or of, of))
        capture = AttentionCapture(needs & {"scores", "values"}, blocks) if blocks else None
        drawn = None if self.frozen else key
        context = batch.context(
            key=drawn if self.decoder is None else key, positions=places(losses, batch), capture=capture
        )
        layers = "layers" in needs
        if self.decoder is not None:
            context = context.at("decoder").replace(source=self.source(batch.source, drawn))
            hidden = self.decoder(batch.tokens, batch.token_info, context, layers)
        else:
            pools = not losses or any(loss.pools for loss in losses)
            hidden = self.encoder(batch.tokens, batch.token_info, context, batch.firsts if pools else None, layers)
        hidden.key, hidden.real = key, batch.token_info.document != PADDING
        hidden.captured = capture.captured if capture is not None else {}
        hidden.penalties = penalties(self.encoder) if "penalties" in needs else {}
        return hidden

    def source(self, given: Batch | None, key: DropoutKey | None = None) -> Source:
        """What the encoder makes of a source, for the decoder to attend to."""
        if given is None:
            raise ValueError("a model with a decoder writes from a source, and this batch has none")
        hidden = self.encoder(given.tokens, given.token_info, given.context(key=key)).last
        return Source(hidden, given.token_info, given.layout)

    def freeze(self) -> None:
        """From now on the encoder is as it is: no gradient, and nothing in it is dropped."""
        self.frozen = True
        self.encoder.requires_grad_(False)

    def count(self, batch: Batch) -> dict[str, int]:
        """Predictions of each loss in the batch."""
        return {loss.name: loss.count(batch) for loss in self.specs}

    def head(self, name: str) -> LossLayer | None:
        return cast(LossLayer | None, dict(self.heads.named_children()).get(name))


def penalties(encoder: nn.Module) -> dict[str, Tensor]:
    """What parts say of their own parameters (`penalty`), by name [n]: once for each use of a shared parameter."""
    by_name: dict[str, list[Tensor]] = {}
    for module in encoder.modules():
        if hasattr(module, "penalty"):
            for name, value in cast(Any, module).penalty().items():
                by_name.setdefault(name, []).append(value)
    return {name: torch.stack(values) for name, values in by_name.items()}


def places(losses: tuple[Loss, ...], batch: Batch) -> Tensor | None:
    """The tokens that some loss reads, each once; None: any may be read."""
    positions = [loss.read_positions(batch) for loss in losses if not loss.regularizer]
    known = [each for each in positions if each is not None]
    if not known or len(known) < len(positions):
        return None
    joined = torch.cat(known)
    return joined if len(known) == 1 or joined.is_meta else joined.unique()


def initialise(model: nn.Module, deviation: float, seed: int) -> None:
    """Fresh weights, the same for a seed on every machine: matrices and tables N(0, deviation), norms 1, biases 0, and
    what belongs to none of these as its module says (`Fresh`)."""
    generator = torch.Generator().manual_seed(seed)
    done: set[int] = set()
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)) and id(module.weight) not in done:
            done.add(id(module.weight))
            with torch.no_grad():
                module.weight.normal_(0.0, deviation, generator=generator)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, CustomInit):
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in done:
                    done.add(id(parameter))
                    module.begin(name, parameter, deviation, generator)
