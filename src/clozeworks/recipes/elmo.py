"""ELMo (Peters et al. 2018): language models of words by their characters, one each way, whose layers are features."""

from clozeworks.model import Encoder
from clozeworks.nn.bidirectional import Bidirectional
from clozeworks.nn.block import Block
from clozeworks.nn.characters import Characters
from clozeworks.nn.embed import Embed
from clozeworks.nn.mixers.lstm import LSTM
from clozeworks.objectives.losses.next_word import NextWord
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import Stream
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Adagrad, Train
from clozeworks.recipe import Recipe
from clozeworks.starts.prior import FrequencyPrior

__all__ = ["elmo_base", "elmo_mini"]


def elmo_base() -> Recipe:
    """93,600,864 parameters without the softmax, as the published weights have them."""
    first = Block(LSTM(4096, clip=3.0, clip_out=3.0), None, norm=None, dropout=0.1, residual=False)  # 3.4
    second = Block(LSTM(4096, clip=3.0, clip_out=3.0), None, norm=None, dropout=0.0)  # 3.4: a residual connection
    return Recipe(
        name="elmo_base",
        encoder=Encoder(
            width=512,
            vocab=793_471,  # published options
            embed=Embed(positions=None, segments=0, norm=None, dropout=0.1, words=Characters()),  # 3.4, [Kim et al.]
            stack=Bidirectional(
                2,
                (first, second),
                memory=1,  # published code: states continue from batch to batch
                dropout=0.1,
            ),
        ),
        objective=Objective(
            Stream(length=20, streams=2 * 3 * 128, both=True),  # published code: 3 x 128 rows each way
            Shift(),
            (NextWord(samples=8192),),  # 3.1: one softmax for both ways
        ),
        train=Train(  # published code
            steps=1_000_800,  # 10 epochs of 768,648,884 words
            batch_tokens=2 * 3 * 128 * 20,
            micro_tokens=2 * 128 * 20,
            learning_rate=0.2,
            warmup=0,
            schedule="constant",
            optimizer=Adagrad(clip=None, start=1.0),
            clip=10.0,
            save_every=10_000,
            evaluate_every=10_000,
        ),
    )


def elmo_mini() -> Recipe:
    """Width 128 each way, for a laptop, whose softmax knows how frequent words are before it learns."""
    r = elmo_base()
    r.name = "elmo_mini"
    r.encoder.width, r.encoder.vocab = 128, 30_000
    first = Block(LSTM(512, clip=3.0, clip_out=3.0), None, norm=None, dropout=0.1, residual=False)
    second = Block(LSTM(512, clip=3.0, clip_out=3.0), None, norm=None, dropout=0.0)
    r.encoder.stack.block = (first, second)
    r.encoder.embed.words = Characters(((1, 32), (2, 32), (3, 64), (4, 128)), highways=1)
    r.objective = Objective(Stream(length=32, streams=128, both=True), Shift(), (NextWord(samples=1024),))
    r.start = (FrequencyPrior(),)  # LOG.md: from 0 the units end at their clips
    r.train = Train(steps=10_000, batch_tokens=4096, learning_rate=2e-3, warmup=0.05, schedule="cosine")
    return r
