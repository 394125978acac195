"""SpanBERT (Joshi et al. 2019): BERT that predicts spans, also from the tokens beside them.

The paper's comparison of masks changes the mask of BERT and nothing else (section 6.1). Each of its five rows, subword
tokens, whole words, named entities, noun phrases and geometric spans, is one option of `clozeworks pretrain bert_base`
(or `bert_mini`); for the third and the fourth the text has to be annotated:

    --set objective.corruption=MaskTokens
    --set objective.corruption=MaskWholeWords
    --set "objective.corruption=MaskPhrases(stage=entity, share=0.5)"
    --set "objective.corruption=MaskPhrases(stage=phrase, share=0.5)"
    --set objective.corruption=MaskSpans
"""

from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.span_boundary import SpanBoundary
from clozeworks.objectives.mask.spans import MaskSpans
from clozeworks.objectives.segments import DocSentences
from clozeworks.optim.settings import AdamW
from clozeworks.recipe import Recipe
from clozeworks.recipes.bert import bert_base, laptop, shape

__all__ = ["spanbert_base", "spanbert_large", "spanbert_mini"]


def spanbert_base() -> Recipe:
    r = bert_base()
    r.name = "spanbert_base"
    r.encoder.vocab = 28996  # 4.2: the cased vocabulary
    r.objective.segments = DocSentences(length=512)  # 3.3: one stretch of one document, never shortened
    r.objective.corruption = MaskSpans()  # 3.1
    r.objective.losses = (MaskedLM(), SpanBoundary())  # 3.2, and 3.3: without next sentence prediction
    r.train.steps = 2_400_000  # 4.2
    r.train.phases = ()  # full length throughout
    r.train.optimizer = AdamW(eps=1e-8)
    return r


def spanbert_large() -> Recipe:
    return shape(spanbert_base(), "spanbert_large", depth=24, width=1024)


def spanbert_mini() -> Recipe:
    r = laptop(shape(spanbert_base(), "spanbert_mini", depth=4, width=256))
    r.train.optimizer = AdamW(eps=1e-8)
    return r
