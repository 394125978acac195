"""RoBERTa (Liu et al. 2019): BERT, trained better."""

from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.mask.whole_words import MaskWholeWords
from clozeworks.objectives.segments import FullSentences
from clozeworks.pretraining import Recipe
from clozeworks.recipes.bert import bert_base, bert_mini, laptop, shape
from clozeworks.train.settings import AdamW

__all__ = ["roberta_base", "roberta_large", "roberta_mini", "roberta_wwm_mini"]


def roberta_base() -> Recipe:
    """RoBERTa-base (Liu et al. 2019): BERT-base trained longer, with larger batches, on full sentences without the next
    sentence question, masks drawn anew each time, and bytes for a vocabulary."""
    r = bert_base()
    r.name = "roberta_base"
    r.encoder.vocab = 50265  # 4.4: byte-level BPE
    r.encoder.embed.positions = LearnedPositions(512, offset=2)  # fairseq counts from padding_idx + 1
    r.encoder.embed.segments = 1  # 4.2: no pairs, hence one segment type
    r.encoder.embed.norm, r.encoder.stack.block_at(0).norm = LayerNorm(1e-5), LayerNorm(1e-5)
    r.objective.segments = FullSentences(length=512)  # 4.2
    r.objective.corruption = MaskTokens(rounding="random", replace=Replace(source="ordinary"))  # 4.1: anew each epoch
    r.objective.losses = (MaskedLM(norm=LayerNorm(1e-5)),)  # 4.2: without next sentence prediction
    r.train.steps = 500_000  # 5
    r.train.batch_tokens = 8192 * 512  # 4.3
    r.train.learning_rate = 6e-4  # table 9
    r.train.warmup = 24_000
    r.train.phases = ()  # full length throughout
    r.train.optimizer = AdamW(betas=(0.9, 0.98), eps=1e-6)  # 3.1
    return r


def roberta_large() -> Recipe:
    """RoBERTa-large: the shape of BERT-large, a lower rate and a longer warm-up."""
    r = shape(roberta_base(), "roberta_large", depth=24, width=1024)
    r.train.learning_rate = 4e-4
    r.train.warmup = 30_000
    return r


def roberta_mini() -> Recipe:
    """RoBERTa at four layers of width 256, with settings for a laptop."""
    r = laptop(shape(roberta_base(), "roberta_mini", depth=4, width=256))
    r.train.optimizer = AdamW(betas=(0.9, 0.98), eps=1e-6)
    return r


def roberta_wwm_mini() -> Recipe:
    """RoBERTa-wwm (Cui et al. 2019): whole words, no pairs, but BERT's classes and vocabulary."""
    r = bert_mini()
    r.name = "roberta_wwm_mini"
    r.objective.segments = FullSentences(length=128)
    r.objective.corruption = MaskWholeWords()  # 3.1: words of a segmenter
    r.objective.losses = (MaskedLM(),)  # 3.2: without next sentence prediction
    return r
