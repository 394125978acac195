"""A second stack that writes: it reads what it has written, and across to what an encoder has read."""

from dataclasses import dataclass

from torch import Tensor, nn

from clozeworks.core.batch import Hidden
from clozeworks.core.bounds import Natural
from clozeworks.core.context import Context
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.core.token_info import TokenInfo
from clozeworks.nn.embed import Embed, EmbedLayer
from clozeworks.nn.mixer import Mixer
from clozeworks.nn.stack import Stack


@dataclass(slots=True)
class Decoder(Spec):
    """Everything between the tokens written so far and the vectors that the next ones are predicted from (Vaswani et
    al. 2017, 3.1).

    y = stack(embed(written), source), where each block attends to what was written before, then across to all of its
    source: Block(mixer, ffn, cross=Attention(8)). As wide as the encoder, and of the same vocabulary.

    `embed` = None: both sides are read by the encoder's embedding, so that source, target and output are one table
    (3.4). Otherwise the target has tables of its own, and the output is tied to these. What is written begins after
    the token `start` and ends with `end`; None: with the tokenizer's [CLS] and [SEP].
    """

    stack: Stack
    embed: Embed | None = None
    start: Natural | None = None
    end: Natural | None = None

    def check(self, where: str) -> None:
        if self.stack.streams != 1:
            given, todo = type(self.stack).__name__, "use a stack with one stream"
            raise RecipeError(f"{where}.stack", given, "what is written has one order, from its first token on", todo)
        if self.stack.memory:
            needed = "what is written begins anew with every source"
            raise RecipeError(f"{where}.stack.memory", self.stack.memory, needed, "use 0")
        for cross in crosses(self.stack):
            if cross is None:
                needed = "each of its blocks reads the source"
                raise RecipeError(f"{where}.stack.block.cross", None, needed, "use Attention(heads=8)")
            if "source" not in cross.takes:
                given, needed = type(cross).__name__, "it cannot attend to other rows than its own"
                raise RecipeError(f"{where}.stack.block.cross", given, needed, "use Attention")

    def fit(self, where: str, width: int, read: int) -> None:
        """Raise `RecipeError` if it cannot be built as wide as the encoder's vectors, which come from words of width
        `read`."""
        self.stack.fit(f"{where}.stack", width)
        if self.embed is None and width != read:
            needed = f"the encoder's words are {read} wide, and what it gives is {width}"
            raise RecipeError(f"{where}.embed", None, needed, f"use Embed(), or an encoder that gives {read}")
        if self.embed is not None and self.embed.positions is not None:
            self.embed.positions.fit(f"{where}.embed.positions", width)

    def check_source(self, where: str, encoder: Stack) -> None:
        """Raise `RecipeError` if it cannot write from what an encoder of this stack, at path `where`, has read."""
        if encoder.streams != 1 or encoder.memory:
            needed = "a source is read whole, by one stream without memory"
            raise RecipeError(where, type(encoder).__name__, needed, "use Stack(...) with memory=0")
        for mixer in encoder.mixers():
            if "full" not in encoder.sees(mixer):
                needed = "a source is read from both sides, and it reads one way"
                raise RecipeError(f"{where}.block.mixer", type(mixer).__name__, needed, "use Attention")

    def build(self, width: int, vocab: int, embed: EmbedLayer) -> "DecoderLayer":
        return DecoderLayer(self, width, vocab, embed)


def crosses(stack: Stack) -> list[Mixer | None]:
    """What reads the source in each block: its cross-attention, or its mixer by itself; a cycled one once."""
    blocks = stack.block if isinstance(stack.block, tuple) else (stack.block,)
    return [block.cross or (block.mixer if block.mixer.across else None) for block in blocks[: max(stack.depth, 0)]]


class DecoderLayer(nn.Module):
    """Weights of `Decoder`: a stack, and tables of its own unless it reads by the encoder's."""

    def __init__(self, spec: Decoder, width: int, vocab: int, embed: EmbedLayer):
        super().__init__()
        # The encoder's own module has its first name there, by which each of its tensors is saved and counted once.
        self.embed = spec.embed.build(width, vocab) if spec.embed else embed
        self.stack = spec.stack.build(width)
        self.width = spec.stack.out_width(width)

    def forward(self, tokens: Tensor, side: TokenInfo, context: Context, layers: bool = False) -> Hidden:
        """tokens [B, L], `context.source` -> Hidden."""
        return self.stack(self.embed(tokens, side, context), context, layers)
