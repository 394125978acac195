"""Encoders of our own: what our measurements say is best for minutes to a day on a processor (docs/learning.md).

Each is, weight for weight, a RoFormer (Su et al. 2021): a directory for `transformers` says so exactly.
"""

from clozeworks.model import Encoder
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.positions import Rotary
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_vectors import SentenceVectors
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import DocSentences, FullSentences
from clozeworks.optim.settings import AdamW, EmbeddingRate, Phase, Train, WarmupStableDecay
from clozeworks.recipe import Recipe
from clozeworks.starts.counted import CountedTable
from clozeworks.starts.distilled import DistilledTable
from clozeworks.starts.fitted_map import FittedMap
from clozeworks.starts.neighbours import NeighbourInit
from clozeworks.starts.prior import FrequencyPrior

__all__ = ["cloze_base", "cloze_mini", "cloze_mini_distilled", "cloze_small", "cloze_tiny"]

MASKED = 0.4  # in training: more than twice the predictions a step; evaluation masks 15 % as everywhere


def cloze_tiny() -> Recipe:
    """Two layers of width 128, for some minutes on a processor: attention begins at neighbours, words as counted."""
    r = own("cloze_tiny", depth=2, width=128, length=32, learning_rate=2e-3, init=0.06)
    r.train.optimizer = AdamW()  # in two minutes a slower table costs masked words more than it brings (LOG.md)
    r.start = (NeighbourInit(), CountedTable())  # a narrow table has no room for passages
    return r


def cloze_mini() -> Recipe:
    """Four layers of width 256, for ten minutes to an hour: attention begins at neighbours, words as counted."""
    return own("cloze_mini", depth=4, width=256, length=64, learning_rate=1e-3, init=0.04)


def cloze_mini_distilled() -> Recipe:
    """`cloze_mini`, taught by an encoder of any tokenizer: its sentence vectors beside the masked tokens."""
    return distil(cloze_mini())


def cloze_small() -> Recipe:
    """Six layers of width 384, for hours: attention begins at neighbours, words as counted."""
    return own("cloze_small", depth=6, width=384, length=128, learning_rate=7e-4, init=0.03)


def cloze_base() -> Recipe:
    """Eight layers of width 512, for a day: attention begins at neighbours, words as counted."""
    return own("cloze_base", depth=8, width=512, length=128, learning_rate=5e-4, init=0.03)


def distil(r: Recipe) -> Recipe:
    """The same, taught by an encoder of any tokenizer: words begin as that one knows them, texts have its vectors."""
    r.name = f"{r.name}_distilled"
    r.objective.segments = DocSentences(length=r.objective.segments.length)  # each text is one that has a vector
    r.objective.losses = (MaskedLM(), SentenceVectors(10.0))
    r.start = (NeighbourInit(), DistilledTable(), FittedMap(), FrequencyPrior())
    r.train.phases = ()  # 15 % masked in training, too: the vector of a text should know most of its words
    # Chosen together with the prior (LOG.md), not apart.
    r.train.optimizer, r.train.schedule, r.train.warmup = AdamW(), "linear", 0.2
    return r


def own(name: str, depth: int, width: int, length: int, learning_rate: float, init: float) -> Recipe:
    """Heads of 32 units, so that a small model has some; no dropout, since a text is read a few times at most."""
    mixer = Attention(width // 32, rotary=Rotary())
    return Recipe(
        name=name,
        encoder=Encoder(
            width=width,
            vocab=8192,
            embed=Embed(positions=None, dropout=0.0),
            stack=Stack(depth, Block(mixer, FeedForward(4 * width, "gelu"), dropout=0.0)),
            init=init,
        ),
        objective=Objective(FullSentences(length=length), MaskTokens(), (MaskedLM(),)),
        train=Train(
            steps=2_000,
            batch_tokens=1024,  # many small steps: the budget is a number of tokens
            learning_rate=learning_rate,
            optimizer=EmbeddingRate(),  # the counted table stays near what labels profit from
            schedule=WarmupStableDecay(),
            phases=(Phase(1.0, length, MASKED),),
        ),
        start=(NeighbourInit(), CountedTable(far=0, passage=64)),
    )
