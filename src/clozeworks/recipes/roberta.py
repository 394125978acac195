"""RoBERTa (Liu et al. 2019): BERT, trained better."""

from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.mask.whole_words import MaskWholeWords
from clozeworks.objectives.segments import DocSentences, FullSentences, SegmentPair, SentencePair
from clozeworks.optim.settings import AdamW
from clozeworks.recipe import Recipe
from clozeworks.recipes.bert import bert_base, bert_base_chinese, bert_mini, laptop, shape

__all__ = [
    "roberta_base",
    "roberta_base_2k",
    "roberta_base_8k",
    "roberta_base_256",
    "roberta_large",
    "roberta_mini",
    "roberta_mini_doc_sentences",
    "roberta_mini_segment_pair",
    "roberta_mini_sentence_pair",
    "roberta_mini_static",
    "roberta_wwm_base",
    "roberta_wwm_large",
    "roberta_wwm_mini",
]


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


def roberta_base_256() -> Recipe:
    return batches(roberta_base(), "roberta_base_256", 256, steps=1_000_000, learning_rate=1e-4)


def roberta_base_2k() -> Recipe:
    return batches(roberta_base(), "roberta_base_2k", 2048, steps=125_000, learning_rate=7e-4)


def roberta_base_8k() -> Recipe:
    return batches(roberta_base(), "roberta_base_8k", 8192, steps=31_000, learning_rate=1e-3)


def batches(r: Recipe, name: str, rows: int, steps: int, learning_rate: float) -> Recipe:
    """Batches of another size over about the same number of sequences, with the rates of table 3.

    fairseq's own page has 5e-4 for 2,048 rows and 7e-4 for 8,192. A step is worked off in pieces of
    `train.micro_tokens`, whatever its size.
    """
    r.name = name
    r.train.batch_tokens = rows * 512
    r.train.steps, r.train.learning_rate = steps, learning_rate
    r.train.warmup = 0.048  # the share of table 9; 4.3 tells none
    return r


def roberta_mini() -> Recipe:
    """RoBERTa at four layers of width 256, with settings for a laptop."""
    r = laptop(shape(roberta_base(), "roberta_mini", depth=4, width=256))
    r.train.optimizer = AdamW(betas=(0.9, 0.98), eps=1e-6)
    return r


def roberta_mini_segment_pair() -> Recipe:
    r = paired(roberta_mini(), "roberta_mini_segment_pair")
    r.objective.segments = SegmentPair(length=128)  # 4.2
    return r


def roberta_mini_sentence_pair() -> Recipe:
    r = paired(roberta_mini(), "roberta_mini_sentence_pair")
    r.objective.segments = SentencePair(length=128)  # 4.2
    return r


def paired(r: Recipe, name: str) -> Recipe:
    """Pairs as BERT has them: two segment types, and next sentence prediction."""
    r.name = name
    r.encoder.embed.segments = 2
    r.objective.losses = (*r.objective.losses, SentenceRelation())
    return r


def roberta_mini_doc_sentences() -> Recipe:
    r = roberta_mini()
    r.name = "roberta_mini_doc_sentences"
    r.objective.segments = DocSentences(length=128)  # 4.2
    return r


def roberta_mini_static() -> Recipe:
    r = roberta_mini()
    r.name = "roberta_mini_static"
    assert r.objective.corruption is not None
    r.objective.corruption.copies = 10  # 4.1: in 40 epochs, each 4 times
    return r


def roberta_wwm_base() -> Recipe:
    """RoBERTa-wwm-ext (Cui et al. 2019): whole words, no pairs, full length throughout, but BERT's classes."""
    r = whole_words(bert_base_chinese(), "roberta_wwm_base")
    r.train.batch_tokens = 384 * 512
    r.train.phases = ()
    return r


def roberta_wwm_large() -> Recipe:
    r = shape(roberta_wwm_base(), "roberta_wwm_large", depth=24, width=1024)
    r.train.steps = 2_000_000
    r.train.batch_tokens = 512 * 512
    return r


def roberta_wwm_mini() -> Recipe:
    """RoBERTa-wwm (Cui et al. 2019): whole words, no pairs, but BERT's classes and vocabulary."""
    return whole_words(bert_mini(), "roberta_wwm_mini")


def whole_words(r: Recipe, name: str) -> Recipe:
    r.name = name
    r.objective.segments = FullSentences(length=r.objective.segments.length)
    r.objective.corruption = MaskWholeWords()  # 3.1: words of a segmenter
    r.objective.losses = (MaskedLM(),)  # 3.2: without next sentence prediction
    return r
