"""Lite Transformer (Wu et al. 2020): attention for what is far, convolution for what is near, half the width each."""

from clozeworks.model import Encoder
from clozeworks.nn.block import Block
from clozeworks.nn.decoder import Decoder
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.lightconv import LightConv
from clozeworks.nn.mixers.split import Split
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import SinusoidalPositions
from clozeworks.nn.stack import Stack
from clozeworks.nn.words import Adaptive
from clozeworks.objectives.losses.adaptive_next_token import AdaptiveNextToken
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe
from clozeworks.recipes.transformer import transformer_base, transformer_mini

__all__ = [
    "lite_transformer_lm",
    "lite_transformer_lm_mini",
    "lite_transformer_mini",
    "lite_transformer_wmt",
    "lite_transformer_wmt_200",
    "lite_transformer_wmt_408",
]

KERNELS = (3, 7, 15, 31, 31, 31)  # published code, of the encoder's layers and of the decoder's


def blocks(width: int, kernels: tuple[int, ...], cross: int | None = None, dropped: float = 0.08) -> tuple[Block, ...]:
    """One for each layer; `cross` heads look at a source, `dropped` of the weights of attention and of kernels are."""
    return tuple(
        Block(
            Split(  # 4: half of the channels each
                (Attention(4, dropout=dropped), LightConv(4, kernel, dropped, dynamic=True))
            ),
            FeedForward(width, "relu"),  # 3.2: flat, where the usual one is four times as wide inside
            cross=None if cross is None else Attention(cross, dropout=dropped),  # over the whole width
            norm=LayerNorm(1e-5),
            dropout=0.1,
        )
        for kernel in kernels
    )


def lite_transformer_wmt() -> Recipe:
    """Translation: 17,283,616 parameters outside the table of words, where transformer_base has 44,138,496."""
    r = transformer_base()
    r.name = "lite_transformer_wmt"
    _widen(r, 496)
    r.encoder.vocab = 32_768
    r.encoder.embed.positions = SinusoidalPositions()  # published code: first all sines, then all cosines
    r.train.steps, r.train.batch_tokens, r.train.micro_tokens = 50_000, 4096 * 16 * 8, 4096  # published embed496.yml
    r.train.learning_rate, r.train.warmup, r.train.schedule = 1e-3, 10_000, "cosine"
    return r


def lite_transformer_wmt_408() -> Recipe:
    """11,739,792 parameters outside the table of words."""
    r = lite_transformer_wmt()
    r.name = "lite_transformer_wmt_408"
    _widen(r, 408)
    return r


def lite_transformer_wmt_200() -> Recipe:
    """2,884,400 parameters outside the table of words."""
    r = lite_transformer_wmt()
    r.name = "lite_transformer_wmt_200"
    _widen(r, 200)
    return r


def _widen(r: Recipe, width: int) -> None:
    r.encoder.width, r.encoder.init = width, width**-0.5
    r.encoder.stack = Stack(6, blocks(width, KERNELS))
    r.decoder = Decoder(Stack(6, blocks(width, KERNELS, cross=8)))


def lite_transformer_mini() -> Recipe:
    """Translation on a laptop: three layers of width 256 on each side."""
    r = transformer_mini()
    r.name = "lite_transformer_mini"
    r.encoder.stack = Stack(3, blocks(256, KERNELS[:3], dropped=0.0))
    r.decoder = Decoder(Stack(3, blocks(256, KERNELS[:3], cross=4, dropped=0.0)))
    return r


def lite_transformer_lm() -> Recipe:
    """Language model of WikiText-103: a decoder alone, 12 layers of width 512 (5.1), words by clusters of frequency.

    What the paper does not say is that of Baevski & Auli (2019), whose model it makes smaller.
    """
    kernels = (15, 15, 31, 31, 31, 31, 63, 63, 63, 63, 63, 63)
    return Recipe(
        name="lite_transformer_lm",
        encoder=Encoder(
            width=512,
            vocab=267_744,
            embed=Embed(
                SinusoidalPositions(),
                segments=0,
                norm=None,
                dropout=0.1,
                scale=True,
                words=Adaptive((20_000, 60_000), 4),
            ),
            stack=Stack(12, blocks(512, kernels, dropped=0.1)),
            init=512**-0.5,
        ),
        objective=Objective(FullSentences(length=512), Shift(), (AdaptiveNextToken(),)),
        train=Train(
            steps=286_000,
            batch_tokens=65_536,
            micro_tokens=4096,
            learning_rate=1e-3,
            warmup=16_000,
            schedule="cosine",
            clip=0.1,
            save_every=10_000,
            evaluate_every=10_000,
        ),
    )


def lite_transformer_lm_mini() -> Recipe:
    """Language model on a laptop: four layers of width 256, the norm before each branch."""
    r = lite_transformer_lm()
    r.name = "lite_transformer_lm_mini"
    r.encoder.width, r.encoder.vocab, r.encoder.embed.words = 256, 40478, None
    r.encoder.init = 256**-0.5
    layers = blocks(256, (3, 7, 15, 31), dropped=0.0)
    for block in layers:
        block.place = "pre"
    r.encoder.stack = Stack(4, layers, norm=LayerNorm(1e-5))
    r.objective = Objective(FullSentences(length=128), Shift(), (NextToken(),))
    r.train = Train(steps=10_000, batch_tokens=4096, learning_rate=1e-3, warmup=0.05, schedule="cosine")
    return r
