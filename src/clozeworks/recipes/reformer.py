"""Reformer (Kitaev et al. 2020): hashing instead of all pairs, layers that are computed back instead of kept."""

from clozeworks.model import Encoder
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.chunks import LocalAttention
from clozeworks.nn.mixers.lsh import LSH
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import AxialPositions
from clozeworks.nn.reversible import Reversible
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe

__all__ = ["reformer_enwik8", "reformer_mini"]


def reformer_enwik8() -> Recipe:
    """Bytes in rows of 65,536, in the shape of the published model: 149 million parameters.

    How it was trained is published in parts only: steps, rate and optimizer are ours.
    """
    ffn = FeedForward(4096, "relu", dropout=0.2, chunk=4096)  # 3: chunks; the published shape has none
    local = Block(LocalAttention(8, chunk=128, dropout=0.2), ffn, place="pre", dropout=0.2)
    hashed = Block(LSH(8, chunk=256, rounds=4, buckets=512, dropout=0.1), ffn, place="pre", dropout=0.2)  # 2
    return Recipe(
        name="reformer_enwik8",
        encoder=Encoder(
            width=1024,
            vocab=258,  # bytes and two more
            embed=Embed(
                AxialPositions((128, 512), (256, 768), dropout=0.2, deviation=1.0),
                segments=0,
                norm=None,
                dropout=0.2,
                dropped="words",
            ),
            stack=Reversible(12, (local, local, hashed, local), norm=LayerNorm(), dropout=0.2),  # 3, equation 9
        ),
        objective=Objective(FullSentences(length=65_536), Shift(), (NextToken(tied=False),)),
        train=Train(
            steps=100_000,
            batch_tokens=8 * 65_536,  # 4: a row on each of eight devices
            micro_tokens=65_536,
            learning_rate=5e-4,
            warmup=5_000,
            schedule="cosine",
            save_every=1_000,
            evaluate_every=1_000,
        ),
    )


def reformer_mini() -> Recipe:
    """Four layers of width 256, for tokens of any kind and rows of up to 4,096, with settings for a laptop."""
    r = reformer_enwik8()
    r.name = "reformer_mini"
    r.encoder.width, r.encoder.vocab = 256, 40_478
    # Vectors of positions begin as small as those of words: fifty times as large, they are all that is learnt for long.
    r.encoder.embed.positions = AxialPositions((64, 64), (64, 192), dropout=0.05)
    r.encoder.embed.dropout = 0.05
    ffn = FeedForward(1024, "relu", dropout=0.05)
    local = Block(LocalAttention(4, chunk=32), ffn, place="pre", dropout=0.05)
    hashed = Block(LSH(4, chunk=32, rounds=2), ffn, place="pre", dropout=0.05)
    r.encoder.stack = Reversible(4, (local, hashed, local, hashed), norm=LayerNorm(), dropout=0.05)
    r.objective.segments.length = 128
    r.train = Train(steps=10_000, batch_tokens=4096, learning_rate=1e-3, warmup=0.05, schedule="cosine")
    return r
