"""Transformer-XL (Dai et al. 2019): one long text read piece by piece, with what was read before in sight."""

from clozeworks.model import Encoder
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.stack import Share, Stack
from clozeworks.nn.words import Adaptive
from clozeworks.objectives.losses.adaptive_next_token import AdaptiveNextToken
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import Stream
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import AdamW, Train
from clozeworks.recipe import Recipe

__all__ = ["transformer_xl_base", "transformer_xl_enwik8", "transformer_xl_mini"]


def transformer_xl_enwik8() -> Recipe:
    """Characters: 41,055,436 parameters, as the published code has them."""
    attention = Attention(8, bias=Relative(dropout=0.1), affine=False)  # 3.3, equation of the relative score
    block = Block(attention, FeedForward(2048, "relu", dropout=0.1), norm=LayerNorm(1e-5), dropout=0.1)
    return Recipe(
        name="transformer_xl_enwik8",
        encoder=Encoder(
            width=512,
            vocab=204,  # the bytes that occur
            embed=Embed(positions=None, segments=0, norm=None, dropout=0.1, scale=True),
            stack=Stack(
                12,
                block,
                Share(bias=1),  # published code: one u and one v for all layers
                memory=512,  # 3.2
                dropout=0.1,
            ),
        ),
        objective=Objective(Stream(length=512, streams=22), Shift(), (NextToken(bias=True),)),
        train=Train(  # published run_enwik8_base.sh
            steps=400_000,
            batch_tokens=22 * 512,
            learning_rate=2.5e-4,
            warmup=0,
            schedule="cosine",
            optimizer=AdamW(eps=1e-8, decay=0.0),
            clip=0.25,
            save_every=10_000,
            evaluate_every=4_000,
        ),
    )


def transformer_xl_base() -> Recipe:
    """Words of WikiText-103, by clusters of frequency: 151,107,538 parameters, as the published code has them.

    Published evaluation (run_wt103_base.sh): segments of 64, memory 640, clamp 400, each token with as much in sight.
    """
    r = transformer_xl_enwik8()
    r.name = "transformer_xl_base"
    r.encoder.width, r.encoder.vocab, r.encoder.stack.depth, r.encoder.stack.memory = 410, 267_735, 16, 150
    r.encoder.embed.words = Adaptive((20_000, 40_000, 200_000))  # published train.py, all vectors of one width
    block = r.encoder.stack.block_at(0)
    block.mixer = Attention(10, bias=Relative(dropout=0.1), affine=False)
    block.ffn = FeedForward(2100, "relu", dropout=0.1)
    r.objective = Objective(Stream(length=150, streams=60), Shift(), (AdaptiveNextToken(),))
    r.train.steps, r.train.batch_tokens = 200_000, 60 * 150  # published run_wt103_base.sh
    return r


def transformer_xl_mini() -> Recipe:
    """Four layers of width 256, for tokens of any kind, with settings for a laptop."""
    r = transformer_xl_enwik8()
    r.name = "transformer_xl_mini"
    r.encoder.width, r.encoder.vocab, r.encoder.stack.depth, r.encoder.stack.memory = 256, 40478, 4, 128
    block = r.encoder.stack.block_at(0)
    block.mixer = Attention(4, bias=Relative(dropout=0.1), affine=False)
    block.ffn = FeedForward(1024, "relu", dropout=0.1)
    block.place = "pre"  # an option of the published code: the norm behind learns word frequencies alone for long
    r.objective.segments = Stream(length=128, streams=32)
    r.train = Train(steps=10_000, batch_tokens=4096, learning_rate=1e-3, warmup=0.05, schedule="cosine")
    return r
