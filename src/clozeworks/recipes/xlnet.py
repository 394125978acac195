"""XLNet (Yang et al. 2019): tokens predicted in any order, each from those before it in that order."""

from clozeworks.model import Encoder
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.two_stream import TwoStream
from clozeworks.objectives.losses.permuted_lm import PermutedLM
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.permute import Permute
from clozeworks.objectives.segments import FullSentences, PairStream
from clozeworks.optim.settings import AdamW, Train
from clozeworks.recipe import Recipe
from clozeworks.recipes.bert import laptop, shape

__all__ = ["xlnet_base", "xlnet_large", "xlnet_mini", "xlnet_mini_memory"]


def xlnet_large() -> Recipe:
    """XLNet-large (Yang et al. 2019): the shape of BERT-large with distances instead of positions and a memory of
    earlier rows, which predicts a sixth of the tokens in a drawn order through a second stream that does not know
    them, so that no row ever holds a [MASK]."""
    mixer = Attention(
        16,
        dropout=0.1,
        bias=Relative(segments=True, dropout=0.1),  # 2.2 and 2.5: Transformer-XL's distances, and relative segments
        affine=False,
    )
    # GELU by tanh in the released code, by erf in Hugging Face's class: what is imported from there has "gelu".
    ffn = FeedForward(4096, "gelu_tanh", dropout=0.1)
    return Recipe(
        name="xlnet_large",
        encoder=Encoder(
            width=1024,
            vocab=32_000,  # 3.1: SentencePiece
            embed=Embed(positions=None, segments=0, norm=None),  # the words alone
            stack=TwoStream(
                24, Block(mixer, ffn), memory=384, dropout=0.1
            ),  # 2.3 and 2.4; released settings: mem_len 384
        ),
        objective=Objective(
            PairStream(length=512, streams=8192, reuse=256),  # 2.5, 3.1; released settings: reuse_len 256
            Permute(context=6, block=256),  # 2.3: K = 6; released settings: perm_size 256
            (PermutedLM(),),  # 3.1: no next sentence prediction, which did not help
        ),
        train=Train(  # A.4
            steps=500_000,
            batch_tokens=8192 * 512,
            micro_tokens=16 * 512,
            learning_rate=4e-4,
            warmup=40_000,
            optimizer=AdamW(eps=1e-6),
            save_every=10_000,
            evaluate_every=10_000,
        ),
    )


def xlnet_base() -> Recipe:
    """XLNet-base: the shape of BERT-base, all else as in XLNet-large."""
    return shape(xlnet_large(), "xlnet_base", depth=12, width=768)


def xlnet_mini() -> Recipe:
    """XLNet at four layers of width 256 with settings for a laptop, on packed sentences and without a memory."""
    r = laptop(shape(xlnet_large(), "xlnet_mini", depth=4, width=256))
    r.objective.segments = FullSentences(length=128)
    r.objective.corruption = Permute()
    r.encoder.stack.memory = 0
    r.encoder.init = 0.06  # 1 / sqrt(width); with 0.02 it learned word frequencies alone in 600 steps
    return r


def xlnet_mini_memory() -> Recipe:
    """XLNet at four layers of width 256 with settings for a laptop, reading both ways and remembering earlier rows."""
    r = xlnet_mini()
    r.name = "xlnet_mini_memory"
    r.objective.segments = PairStream(length=128, streams=32, reuse=64)
    r.encoder.stack.memory = 96  # the published share of a row
    return r
