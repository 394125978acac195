"""Transformer (Vaswani et al. 2017): an encoder reads a sentence, a decoder writes its translation."""

from clozeworks.model import Encoder
from clozeworks.nn.block import Block
from clozeworks.nn.decoder import Decoder
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import SinusoidalPositions
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import Pairs
from clozeworks.objectives.translate import Translate
from clozeworks.optim.settings import AdamW, Train
from clozeworks.recipe import Recipe

__all__ = ["transformer_base", "transformer_big", "transformer_mini"]


def transformer_base() -> Recipe:
    """63,082,496 parameters, 44,138,496 of them outside the one table of 37,000 words."""
    attention, ffn, norm = Attention(8), FeedForward(2048, "relu"), LayerNorm(1e-5)  # 3.2.2, 3.3; eps: torch's own
    return Recipe(
        name="transformer_base",
        encoder=Encoder(
            width=512,
            vocab=37_000,  # 5.1: byte pairs shared by both languages
            # 3.4 and 3.5: vectors times sqrt(512), sine and cosine in turn; 5.4: dropout on the sum
            embed=Embed(SinusoidalPositions("pairs"), segments=0, norm=None, dropout=0.1, scale=True),
            stack=Stack(6, Block(attention, ffn, norm=norm, dropout=0.1)),  # 3.1: the norm behind, none after the last
            init=512**-0.5,  # published code: of the table; its matrices are within a fifth of that
        ),
        decoder=Decoder(Stack(6, Block(attention, ffn, cross=Attention(8), norm=norm, dropout=0.1))),  # one table, 3.4
        objective=Objective(Pairs(length=512, target_length=256), Translate(), (NextToken(smoothing=0.1),)),  # 5.4
        train=Train(
            steps=100_000,  # 5.2
            batch_tokens=50_000,  # 5.1: 25,000 of the source and as many of the target
            micro_tokens=12_500,
            learning_rate=(512 * 4000) ** -0.5,  # 5.3: the peak of d^-0.5 min(s^-0.5, s 4000^-1.5)
            warmup=4000,
            schedule="inverse_sqrt",
            optimizer=AdamW(betas=(0.9, 0.98), eps=1e-9, decay=0.0),
            clip=None,
            save_every=1_000,
            evaluate_every=1_000,
        ),
    )


def transformer_big() -> Recipe:
    """Table 3, last row: 214,245,376 parameters with 37,000 words."""
    r = transformer_base()
    r.name = "transformer_big"
    r.encoder.width, r.encoder.init = 1024, 1024**-0.5
    attention, ffn = Attention(16), FeedForward(4096, "relu")
    r.encoder.stack.block = Block(attention, ffn, norm=LayerNorm(1e-5), dropout=0.3)
    r.decoder = Decoder(Stack(6, Block(attention, ffn, cross=Attention(16), norm=LayerNorm(1e-5), dropout=0.3)))
    r.encoder.embed.dropout = 0.3
    r.train.steps, r.train.learning_rate = 300_000, (1024 * 4000) ** -0.5  # 5.2, 5.3
    return r


def transformer_mini() -> Recipe:
    """Three layers of width 256 on each side, with settings for a laptop and some ten thousand pairs."""
    r = transformer_base()
    r.name = "transformer_mini"
    r.encoder.width, r.encoder.vocab, r.encoder.init = 256, 8000, 256**-0.5
    attention, ffn = Attention(4), FeedForward(1024, "relu")
    r.encoder.stack = Stack(3, Block(attention, ffn, norm=LayerNorm(1e-5), dropout=0.1))
    r.decoder = Decoder(Stack(3, Block(attention, ffn, cross=Attention(4), norm=LayerNorm(1e-5), dropout=0.1)))
    r.objective.segments = Pairs(length=128, target_length=64)
    r.train = Train(
        steps=2_000,
        batch_tokens=4096,
        learning_rate=1e-3,
        warmup=400,
        schedule="inverse_sqrt",
        optimizer=AdamW(betas=(0.9, 0.98), eps=1e-9, decay=0.0),
    )
    return r
