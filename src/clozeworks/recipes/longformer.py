"""Longformer (Beltagy et al. 2020): RoBERTa for long texts; a token looks at its neighbours and at a few others."""

import dataclasses

from clozeworks.nn.block import Block
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.window import Window
from clozeworks.objectives.segments import Stream
from clozeworks.optim.settings import AdamW, Polynomial
from clozeworks.recipe import Recipe
from clozeworks.recipes.roberta import roberta_base, roberta_large, roberta_mini
from clozeworks.recipes.transformer_xl import transformer_xl_enwik8

__all__ = ["longformer_base", "longformer_enwik8", "longformer_large", "longformer_mini", "longformer_mini_4k"]


def longformer_base() -> Recipe:
    """Longformer-base (Beltagy et al. 2020): RoBERTa-base in windows of 512 tokens, for texts of 4,096. The paper goes
    on from a trained RoBERTa (`clozeworks convert`)."""
    return long(near(roberta_base(), "longformer_base", (256,) * 12))  # 5: 512 in all, as much to compute as RoBERTa


def longformer_large() -> Recipe:
    """Longformer-large: the shape of RoBERTa-large."""
    return long(near(roberta_large(), "longformer_large", (256,) * 24))


def longformer_mini() -> Recipe:
    """Longformer at four layers of width 256, with settings for a laptop: texts of 512 tokens, which its windows do not
    yet cover, so that what is far must go through the layers."""
    r = near(roberta_mini(), "longformer_mini", (16, 32, 64, 128))  # 4.2: windows that grow from bottom to top
    r.objective.segments.length = 512
    return r


def longformer_mini_4k() -> Recipe:
    """The same at the length of the paper, a text a step."""
    r = longformer_mini()
    r.name = "longformer_mini_4k"
    r.encoder.embed.positions = LearnedPositions(4096, offset=2)
    r.objective.segments.length = 4096
    return r


def longformer_enwik8() -> Recipe:
    """The small model of characters (section 4): Transformer-XL without memory, a token beside those right before it.

    The first of five phases; each of the others doubles the windows and the length and halves the rate.
    """
    r = transformer_xl_enwik8()
    r.name = "longformer_enwik8"
    block = r.encoder.stack.block_at(0)
    block.place, block.ffn = "pre", FeedForward(2048, "gelu", dropout=0.1)  # appendix A
    r.encoder.stack.block = tuple(before(block, layer) for layer in range(12))
    r.encoder.stack.memory = 0
    r.objective.segments = Stream(length=2048, streams=32)  # appendix A
    r.train.steps, r.train.batch_tokens, r.train.warmup = 430_000, 32 * 2048, 10_000
    r.train.schedule = "constant"
    r.train.optimizer = AdamW(eps=1e-8)
    return r


def before(block: Block, layer: int) -> Block:
    """Windows from 32 tokens to 512, and gaps in two heads of the upper half (4.2)."""
    assert isinstance(block.mixer, Attention)
    step = max(1, layer // 2 - 1)  # 2, 3 and 4 in the last three pairs of layers
    window = Window(32 + 480 * layer // 11, right=0, dilation=(1,) * (block.mixer.heads - 2) + (step,) * 2)
    return dataclasses.replace(block, mixer=dataclasses.replace(block.mixer, window=window))


def near(r: Recipe, name: str, sides: tuple[int, ...]) -> Recipe:
    """A window for each layer, so many tokens to either side, and projections of their own for global tokens."""
    r.name = name
    block = r.encoder.stack.block_at(0)
    assert isinstance(block.mixer, Attention)
    mixers = (GlobalWindow(block.mixer.heads, Window(side), block.mixer.dropout) for side in sides)
    r.encoder.stack.block = tuple(dataclasses.replace(block, mixer=mixer) for mixer in mixers)
    return r


def long(r: Recipe) -> Recipe:
    """Texts and training of section 5."""
    r.encoder.embed.positions = LearnedPositions(4096, offset=2)
    r.objective.segments.length = 4096
    r.train.steps, r.train.batch_tokens = 65_000, 64 * 4096
    r.train.learning_rate, r.train.warmup, r.train.schedule = 3e-5, 500, Polynomial(power=3.0)
    return r
