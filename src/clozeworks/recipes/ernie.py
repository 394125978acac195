"""ERNIE 1.0 (Sun et al. 2019): BERT for Chinese that hides characters, then phrases, then entities.

The three stages are three runs, each from the weights of the one before, on text that was annotated with phrases and
entities:

    clozeworks pretrain ernie_basic_mini --data DATA --out basic
    clozeworks pretrain ernie_phrase_mini --data DATA --from basic --out phrase
    clozeworks pretrain ernie_entity_mini --data DATA --from phrase --out entity

Left out: the task on dialogues (3.3), whose data was not published. The paper tells neither steps nor rates; they are
BERT's.
"""

from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.mask.phrases import MaskPhrases
from clozeworks.recipe import Recipe
from clozeworks.recipes.bert import bert_base, laptop, shape

__all__ = ["ernie_base", "ernie_basic_mini", "ernie_entity_mini", "ernie_phrase_mini"]


def ernie_base() -> Recipe:
    """The released model in its last stage; the stages before it are one field, `objective.corruption.stage`."""
    r = bert_base()
    block = r.encoder.stack.block_at(0)
    r.name = "ernie_base"
    r.encoder.vocab = 18000  # 4.1: 17,964 characters, rounded up in the released file
    r.encoder.embed.positions = LearnedPositions(513)
    block.ffn = FeedForward(3072, "relu")
    r.encoder.embed.norm, block.norm = LayerNorm(1e-5), LayerNorm(1e-5)
    r.objective.corruption = MaskPhrases(stage="entity")  # 3.2
    r.objective.losses = (MaskedLM(activation="relu", norm=LayerNorm(1e-5)), SentenceRelation())
    return r


def ernie_basic_mini() -> Recipe:
    r = laptop(shape(ernie_base(), "ernie_basic_mini", depth=4, width=256))
    r.encoder.stack.block_at(0).ffn = FeedForward(1024, "relu")
    r.objective.corruption = MaskPhrases(stage="basic")  # 3.2.1
    return r


def ernie_phrase_mini() -> Recipe:
    r = ernie_basic_mini()
    r.name = "ernie_phrase_mini"
    r.objective.corruption = MaskPhrases(stage="phrase")  # 3.2.2
    return r


def ernie_entity_mini() -> Recipe:
    r = ernie_phrase_mini()
    r.name = "ernie_entity_mini"
    r.objective.corruption = MaskPhrases(stage="entity")  # 3.2.3
    return r
