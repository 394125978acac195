"""NNLM (Bengio et al. 2003): vectors of the last words side by side, a hidden layer, and the word that follows."""

from clozeworks.model import Encoder
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.mixers.ngram import Ngram
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import AdamW, Train
from clozeworks.recipe import Recipe

__all__ = ["nnlm"]


def nnlm() -> Recipe:
    """y = b + W x + U tanh(d + H x): 5,762,483 parameters with a vocabulary of 16,383, without W 1,830,563.

    V (1 + n m + h) + h (1 + (n - 1) m), or V (1 + m + h) + h (1 + (n - 1) m): V words, vectors of width m, order n,
    h hidden units. Departures: AdamW for plain descent by single words, which would take weeks; all weights decay
    alike; text is read in examples, whose first words have fewer words before them.
    """
    return Recipe(
        name="nnlm",
        encoder=Encoder(
            width=60,  # table 1: m = 30, 60 or 100
            vocab=16_383,  # 4.1: words of Brown that occur more than three times, and a symbol for the others
            embed=Embed(None, segments=0, norm=None, dropout=0.0),
            stack=Stack(1, Block(Ngram(5, hidden=50, direct=True), None, norm=None, dropout=0.0, residual=False)),
        ),
        objective=Objective(FullSentences(length=128), Shift(), (NextToken(bias=True, tied=False),)),
        train=Train(
            steps=10_000,
            batch_tokens=4096,
            learning_rate=3e-3,
            warmup=0.02,
            optimizer=AdamW(decay=1e-4),  # 3.2: of weights and vectors, not of biases
        ),
    )
