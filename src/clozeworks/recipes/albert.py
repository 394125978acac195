"""ALBERT (Lan et al. 2019): BERT with a narrow table of words and one layer throughout, asked for order, not topic."""

from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.stack import Share
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.mask.ngrams import MaskNgrams
from clozeworks.objectives.segments import SentenceOrder
from clozeworks.optim.settings import Lamb
from clozeworks.recipe import Recipe
from clozeworks.recipes.bert import bert_base, laptop, shape

__all__ = ["albert_base", "albert_large", "albert_mini", "albert_xlarge", "albert_xxlarge"]


def albert_base() -> Recipe:
    """ALBERT (Lan et al. 2019): narrow word tables, one set of weights for all layers, sentence order prediction."""
    r = bert_base()
    r.name = "albert_base"
    r.encoder.vocab = 30_000  # 4.1: SentencePiece
    r.encoder.embed.width = 128  # 3.1: factorised embedding, V x E + E x H instead of V x H
    r.encoder.stack.share = Share(attention=1, ffn=1)  # 3.1: all layers are one
    block = r.encoder.stack.block_at(0)
    block.mixer, block.ffn = Attention(12), FeedForward(3072, "gelu_tanh")  # published code: GELU by tanh
    block.dropout = r.encoder.embed.dropout = 0.0  # 4.8: such a model does not overfit
    r.objective.segments = SentenceOrder(length=512)  # 3.1: which came first, instead of whether they belong together
    r.objective.corruption = MaskNgrams(longest=3)  # 4.1
    r.objective.losses = (MaskedLM(activation="gelu_tanh"), SentenceRelation())
    r.train.steps = 125_000  # 4.1
    r.train.batch_tokens = 4096 * 512  # 4.1
    r.train.optimizer = Lamb()  # 4.1
    r.train.learning_rate = 1.76e-3  # 4.1
    r.train.warmup = 3125  # published code
    r.train.phases = ()  # full length throughout
    return r


def albert_large() -> Recipe:
    return shape(albert_base(), "albert_large", depth=24, width=1024)  # table 1


def albert_xlarge() -> Recipe:
    return shape(albert_base(), "albert_xlarge", depth=24, width=2048)  # table 1


def albert_xxlarge() -> Recipe:
    return shape(albert_base(), "albert_xxlarge", depth=12, width=4096)  # table 1: deeper is no better (A.1)


def albert_mini() -> Recipe:
    r = laptop(shape(albert_base(), "albert_mini", depth=4, width=256))
    r.encoder.embed.width = 128  # as in the large ones; with 64 it learned word frequencies alone in 2,000 steps
    return r
