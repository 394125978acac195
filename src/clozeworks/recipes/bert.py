"""BERT (Devlin et al. 2018) and its miniatures (Turc et al. 2019)."""

from clozeworks.model import Encoder, Pooler
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import SegmentPair
from clozeworks.optim.settings import Phase, Train
from clozeworks.recipe import Recipe

__all__ = ["bert_base", "bert_base_chinese", "bert_large", "bert_medium", "bert_mini", "bert_small", "bert_tiny"]


def bert_base() -> Recipe:
    """BERT-base (Devlin et al. 2018): twelve layers of width 768 that see both directions at once, trained to find
    masked tokens and to tell whether the second of two segments follows the first. Others are held against it."""
    return Recipe(
        name="bert_base",
        encoder=Encoder(
            width=768,
            vocab=30522,
            embed=Embed(),  # word + position + segment, norm, dropout (3.2 and figure 2)
            stack=Stack(12, Block(Attention(12, dropout=0.1), FeedForward(3072, "gelu"))),
            pooler=Pooler(),
        ),
        objective=Objective(SegmentPair(length=512), MaskTokens(), (MaskedLM(), SentenceRelation())),  # 3.1
        train=Train(  # A.2
            steps=1_000_000,
            batch_tokens=256 * 512,
            micro_tokens=16 * 512,
            learning_rate=1e-4,
            warmup=10_000,
            phases=(Phase(0.9, 128), Phase(0.1, 512)),
            save_every=10_000,
            evaluate_every=10_000,
        ),
    )


def bert_large() -> Recipe:
    """BERT-large: twice the layers and a third wider, all else as in BERT-base."""
    return shape(bert_base(), "bert_large", depth=24, width=1024)


def bert_base_chinese() -> Recipe:
    """BERT-base for Chinese: a vocabulary of characters, all else as in English."""
    r = bert_base()
    r.name = "bert_base_chinese"
    r.encoder.vocab = 21128  # characters
    return r


def bert_medium() -> Recipe:
    """Eight layers of width 512 (Turc et al. 2019), with settings for a laptop."""
    return laptop(shape(bert_base(), "bert_medium", depth=8, width=512))


def bert_small() -> Recipe:
    """Four layers of width 512 (Turc et al. 2019), with settings for a laptop."""
    return laptop(shape(bert_base(), "bert_small", depth=4, width=512))


def bert_mini() -> Recipe:
    """Four layers of width 256 (Turc et al. 2019), with settings for a laptop: a first model of one's own text."""
    return laptop(shape(bert_base(), "bert_mini", depth=4, width=256))


def bert_tiny() -> Recipe:
    """Two layers of width 128 (Turc et al. 2019), with settings for a laptop: to see a whole road in a minute."""
    return laptop(shape(bert_base(), "bert_tiny", depth=2, width=128))


def shape(r: Recipe, name: str, depth: int, width: int) -> Recipe:
    """Heads of 64 units and a feed-forward part of four times the width, as in every published size."""
    r.name = name
    r.encoder.width = width
    r.encoder.stack.depth = depth
    block = r.encoder.stack.block_at(0)
    assert isinstance(block.mixer, Attention)
    assert block.ffn is not None
    block.mixer.heads, block.ffn.inner = width // 64, 4 * width
    return r


def laptop(r: Recipe) -> Recipe:
    """Settings for minutes on two cores instead of days on sixteen accelerators."""
    r.objective.segments.length = 128
    r.train = Train(steps=10_000, batch_tokens=4096, learning_rate=1e-3, warmup=0.05)
    return r
