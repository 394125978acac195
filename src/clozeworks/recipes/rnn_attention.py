"""Recurrent encoder and decoder: one context for a whole sentence (Cho et al. 2014), or attention at every step
(Bahdanau et al. 2015; Luong et al. 2015)."""

from clozeworks.model import Encoder
from clozeworks.nn.block import Block
from clozeworks.nn.decoder import Decoder
from clozeworks.nn.embed import Embed
from clozeworks.nn.mixer import Mixer
from clozeworks.nn.mixers.recurrent import BothWays
from clozeworks.nn.mixers.recurrent_across import RecurrentAcross
from clozeworks.nn.score import Additive, Dot
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import Pairs
from clozeworks.objectives.translate import Translate
from clozeworks.optim.settings import AdamW, Train
from clozeworks.recipe import Recipe

__all__ = ["rnn_attention_mini", "rnn_fixed_mini", "rnn_luong_mini"]


def rnn_attention_mini() -> Recipe:
    """A GRU reads from both sides, another writes and looks back at what was read (Bahdanau et al. 2015).

    Width 256 for 620 and 1,000, with settings for a laptop and some ten thousand pairs. Departures: source, target and
    output are one table; AdamW for Adadelta; dropout, which the paper has none of.
    """
    return Recipe(
        name="rnn_attention_mini",
        encoder=Encoder(
            width=256,
            vocab=8000,
            embed=Embed(None, segments=0, norm=None, dropout=0.1),
            stack=Stack(1, _layer(BothWays())),  # 3.2
            init=256**-0.5,
        ),
        decoder=Decoder(Stack(1, _layer(RecurrentAcross(Additive())))),  # 3.1, A.1.2
        objective=Objective(Pairs(length=128, target_length=64), Translate(), (NextToken(bias=True),)),
        train=Train(
            steps=2_000,
            batch_tokens=4096,
            learning_rate=2e-3,
            warmup=100,
            schedule="inverse_sqrt",
            optimizer=AdamW(betas=(0.9, 0.98), eps=1e-9, decay=0.0),
        ),
    )


def rnn_fixed_mini() -> Recipe:
    """The same without attention: all that is known of the source is one vector (Cho et al. 2014)."""
    r = rnn_attention_mini()
    r.name = "rnn_fixed_mini"
    assert r.decoder is not None
    r.decoder.stack.block = _layer(RecurrentAcross(None))
    return r


def rnn_luong_mini() -> Recipe:
    """LSTMs, and attention asked by the state of the same step (Luong et al. 2015, 3.1)."""
    r = rnn_attention_mini()
    r.name = "rnn_luong_mini"
    assert r.decoder is not None
    r.encoder.stack.block = _layer(BothWays("lstm"))
    r.decoder.stack.block = _layer(RecurrentAcross(Dot(), "lstm", order="after"))
    return r


def _layer(mixer: Mixer) -> Block:
    """Recurrence alone: nothing is added to what it gives, and nothing normalised."""
    return Block(mixer, None, norm=None, dropout=0.1, residual=False)
