"""Transformer-XL (Dai et al. 2019): one long text read piece by piece, with what was read before in sight."""

from clozeworks.model import Encoder
from clozeworks.nn.attention import Attention
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.stack import Share, Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import Stream
from clozeworks.objectives.shift import Shift
from clozeworks.pretraining import Recipe
from clozeworks.train.settings import AdamW, Train

__all__ = ["transformer_xl_enwik8", "transformer_xl_mini"]


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
        objective=Objective(Stream(length=512, lanes=22), Shift(), (NextToken(bias=True),)),
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


def transformer_xl_mini() -> Recipe:
    r = transformer_xl_enwik8()
    r.name = "transformer_xl_mini"
    r.encoder.width, r.encoder.vocab, r.encoder.stack.depth, r.encoder.stack.memory = 256, 40478, 4, 128
    block = r.encoder.stack.block_at(0)
    block.mixer = Attention(4, bias=Relative(dropout=0.1), affine=False)
    block.ffn = FeedForward(1024, "relu", dropout=0.1)
    r.objective.segments = Stream(length=128, lanes=32)
    r.train = Train(steps=10_000, batch_tokens=4096, learning_rate=1e-3, warmup=0.05, schedule="cosine")
    return r
