"""DistilBERT (Sanh et al. 2019): half of BERT's layers, taught by BERT."""

from clozeworks.objectives.losses.hidden_cosine import HiddenCosine
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.soft_targets import SoftTargets
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.segments import FullSentences
from clozeworks.optim.settings import AdamW, Distil
from clozeworks.recipe import Recipe
from clozeworks.recipes.bert import bert_base, laptop, shape

__all__ = ["distilbert_base", "distilbert_mini"]


def distilbert_base() -> Recipe:
    """DistilBERT (Sanh et al. 2019): half of BERT's layers, distilled from it."""
    r = bert_base()
    r.name = "distilbert_base"
    r.encoder.stack.depth = 6  # 2: every other layer
    r.encoder.embed.segments = 0  # 2: without token types
    r.encoder.pooler = None  # 2
    r.objective.segments = FullSentences(length=512)  # 2: without next sentence prediction
    r.objective.corruption = MaskTokens(rare=0.7)  # published code: rare words more often
    # 3: three losses; their weights are those of the published single-GPU command
    r.objective.losses = (SoftTargets(5.0, temperature=2.0), MaskedLM(2.0), HiddenCosine(1.0))
    r.distil = Distil("spread", freeze_positions=True)  # 3, and published code: layers 0, 2, 4, 7, 9, 11
    r.train.steps = 6_000  # about three epochs, as in the published code, of BERT's 3.3 billion words
    r.train.batch_tokens = 4000 * 512  # 3: up to 4,000 examples
    r.train.learning_rate = 5e-4  # published code, as all below
    r.train.warmup = 0.05
    r.train.clip = 5.0
    r.train.optimizer = AdamW(betas=(0.9, 0.98), eps=1e-6, decay=0.0)
    r.train.phases = ()
    r.train.save_every = r.train.evaluate_every = 500
    return r


def distilbert_mini() -> Recipe:
    """Half of bert_mini's layers."""
    r = distilbert_base()
    clip, optimizer = r.train.clip, r.train.optimizer
    r = laptop(shape(r, "distilbert_mini", depth=2, width=256))
    r.train.clip, r.train.optimizer = clip, optimizer
    return r
