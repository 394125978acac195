"""AWD-LSTM (Merity et al. 2018) as ULMFiT has it (Howard & Ruder 2018): a language model that drops nearly all."""

from clozeworks.model import Encoder
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.mixers.lstm import LSTM
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.activation_change import ActivationChange
from clozeworks.objectives.losses.activation_size import ActivationSize
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import Stream
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import AdamW, Train
from clozeworks.recipe import Recipe

__all__ = ["awd_lstm", "awd_lstm_mini"]


def awd_lstm() -> Recipe:
    """44,260,800 parameters: V (E + 1) + sum over layers of 4 H (H_in + H + 1), with V words and vectors of width E.

    Departures: AdamW as in the published code of ULMFiT, where the paper of AWD-LSTM descends with averaged weights
    (NT-ASGD); rows of one length, where it draws them around 70 each time; one bias a gate, where torch adds two.
    """
    return Recipe(
        name="awd_lstm",
        encoder=Encoder(
            width=400,  # Howard & Ruder 2018, 4.1
            vocab=60_000,  # published code: words at most
            embed=Embed(None, segments=0, norm=None, dropout=0.0, word_dropout=0.05),  # 4.1
            stack=Stack(
                3,
                layers(1150, 400, 0.5, 0.4, 0.3),  # 4.1
                memory=1,  # states continue from batch to batch
                dropout=0.4,  # 4.1
                variational=True,  # Merity et al. 2018, 4.2
            ),
            init=0.058,  # published code: words within 0.1 of 0; less would be lost in three layers that squash
        ),
        objective=Objective(
            Stream(length=70, streams=64),  # Howard & Ruder 2018, 4.1
            Shift(),
            (NextToken(bias=True), ActivationSize(2.0), ActivationChange(1.0)),  # Merity et al. 2018, 4.4 and 4.6
        ),
        train=Train(
            steps=230_000,  # 10 epochs of 103 million words
            batch_tokens=64 * 70,
            learning_rate=4e-3,  # Howard & Ruder 2018, 4.1, of the second stage
            warmup=0.1,
            schedule="cosine",
            optimizer=AdamW(betas=(0.7, 0.99), decay=0.01),  # 4.1, and the published code
            clip=0.25,  # Merity et al. 2018, 5
            save_every=10_000,
            evaluate_every=10_000,
        ),
    )


def layers(cells: int, width: int, weights: float, first: float, other: float) -> tuple[Block, ...]:
    """Three of them, the last as wide as the words; each drops of what it reads and of its recurrent weights."""
    mixers = (
        LSTM(width=cells, weight_drop=weights, locked=first),
        LSTM(width=cells, weight_drop=weights, locked=other),
        LSTM(width=width, weight_drop=weights, locked=other),
    )
    return tuple(Block(mixer, None, norm=None, dropout=0.0, residual=False) for mixer in mixers)


def awd_lstm_mini() -> Recipe:
    """Layers of 256, 256 and 128 for a laptop, which drop a quarter as much: a short run learns little by heart."""
    r = awd_lstm()
    r.name = "awd_lstm_mini"
    r.encoder.width, r.encoder.vocab = 128, 30_000
    r.encoder.stack.block = layers(256, 128, 0.125, 0.1, 0.075)
    r.encoder.stack.dropout, r.encoder.embed.word_dropout = 0.1, 0.0125
    r.objective.segments = Stream(length=64, streams=64)
    r.train = Train(steps=10_000, batch_tokens=4096, learning_rate=5e-3, warmup=0.05, schedule="cosine")
    return r
