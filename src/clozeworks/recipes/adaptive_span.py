"""Adaptive attention span (Sukhbaatar et al. 2019): each head learns how far back it has to look."""

from clozeworks.model import Encoder
from clozeworks.nn.bias.adaptive_span import AdaptiveSpan
from clozeworks.nn.bias.distance_table import DistanceTable
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.stack import Share, Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.losses.span_penalty import SpanPenalty
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import Stream
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Adagrad, Train
from clozeworks.recipe import Recipe

__all__ = ["adaptive_span_large", "adaptive_span_mini", "adaptive_span_text8"]


def adaptive_span_text8() -> Recipe:
    """Letters and the space: 38,356,091 parameters, as the published code has them."""
    attention = Attention(
        8, 0.3, AdaptiveSpan(8192, DistanceTable(8192)), affine=False
    )  # 2.2; published code: no biases
    block = Block(attention, FeedForward(2048, "relu", dropout=0.3), norm=LayerNorm(1e-5), dropout=0.0)
    losses = (
        NextToken(bias=True, tied=False),
        SpanPenalty(5e-7),  # 3: for each layer the mean over its heads
    )
    return Recipe(
        name="adaptive_span_text8",
        encoder=Encoder(
            width=512,
            vocab=27,
            embed=Embed(positions=None, segments=0, norm=None, dropout=0.0),
            stack=Stack(
                12,
                block,
                Share(bias=1),  # published code: one table of distances for all layers
                memory=8192,
            ),
        ),
        objective=Objective(Stream(length=512, streams=64), Shift(), losses),
        train=Train(  # 3 and published experiments/text8.sh
            steps=900_000,
            batch_tokens=64 * 512,
            learning_rate=0.07,
            warmup=32_000,
            schedule="constant",
            optimizer=Adagrad(clip=0.03),
            clip=None,
            save_every=10_000,
            evaluate_every=10_000,
        ),
    )


def adaptive_span_large() -> Recipe:
    """208,636,635 parameters; after its steps the published run adds 20,000 at a tenth of the rate."""
    r = adaptive_span_text8()
    r.name = "adaptive_span_large"
    r.encoder.width, r.encoder.stack.depth = 768, 24
    block = r.encoder.stack.block_at(0)
    block.mixer = Attention(8, 0.4, AdaptiveSpan(8192, DistanceTable(8192)), affine=False)
    block.ffn = FeedForward(4096, "relu", dropout=0.4)
    r.train.steps, r.train.micro_tokens = 250_000, 32 * 512  # published experiments/text8_large.sh
    return r


def adaptive_span_mini() -> Recipe:
    """Four layers of width 256 and spans of at most 512, for tokens of any kind, with settings for a laptop."""
    r = adaptive_span_text8()
    r.name = "adaptive_span_mini"
    r.encoder.width, r.encoder.stack.depth, r.encoder.stack.memory = 256, 4, 512
    block = r.encoder.stack.block_at(0)
    block.mixer = Attention(4, bias=AdaptiveSpan(512, DistanceTable(512)), affine=False)
    block.ffn = FeedForward(1024, "relu")
    block.place, r.encoder.stack.norm = "pre", LayerNorm(1e-5)  # the norm behind learns frequencies alone for long
    r.objective.segments = Stream(length=128, streams=32)
    r.objective.losses = (NextToken(bias=True, tied=False), SpanPenalty(2e-6))  # published experiments/enwik8_small.sh
    r.train = Train(steps=10_000, batch_tokens=4096, learning_rate=1e-3, warmup=0.05, schedule="cosine")
    return r
