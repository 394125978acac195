"""GPT (Radford et al. 2018): a Transformer that reads from left to right, trained to say what comes next."""

from clozeworks.model import Encoder
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe

__all__ = ["gpt", "gpt_mini"]


def gpt() -> Recipe:
    """GPT (Radford et al. 2018): a Transformer that reads from left to right and predicts the next token."""
    block = Block(Attention(12, dropout=0.1), FeedForward(3072, "gelu_tanh"), norm=LayerNorm(1e-5))
    return Recipe(
        name="gpt",
        encoder=Encoder(
            width=768,
            vocab=40478,  # 4.1: BPE of 40,000 merges
            embed=Embed(LearnedPositions(512), segments=0, norm=None),
            stack=Stack(12, block),  # the norm behind each branch, none after the last
        ),
        objective=Objective(FullSentences(length=512), Shift(), (NextToken(),)),  # 3.1, equation 1
        train=Train(  # 4.1
            steps=3_000_000,  # 100 epochs of about a billion tokens
            batch_tokens=64 * 512,
            micro_tokens=16 * 512,
            learning_rate=2.5e-4,
            warmup=2000,
            schedule="cosine",
            save_every=10_000,
            evaluate_every=10_000,
        ),
    )


def gpt_mini() -> Recipe:
    r = gpt()
    r.name = "gpt_mini"
    r.encoder.width, r.encoder.stack.depth = 256, 4
    block = r.encoder.stack.block_at(0)
    block.mixer, block.ffn = Attention(4, dropout=0.1), FeedForward(1024, "gelu_tanh")
    r.objective.segments.length = 128
    r.train = Train(steps=10_000, batch_tokens=4096, learning_rate=1e-3, warmup=0.05, schedule="cosine")
    return r
