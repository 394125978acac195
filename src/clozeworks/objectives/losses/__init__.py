"""Losses: one documented file each."""

from clozeworks.objectives.losses.attention_scores import AttentionScores
from clozeworks.objectives.losses.hidden_cosine import HiddenCosine
from clozeworks.objectives.losses.hidden_states import HiddenStates
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.relations import Relations
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.losses.sentence_vectors import SentenceVectors
from clozeworks.objectives.losses.soft_targets import SoftTargets

__all__ = [
    "AttentionScores",
    "HiddenCosine",
    "HiddenStates",
    "MaskedLM",
    "Relations",
    "SentenceRelation",
    "SentenceVectors",
    "SoftTargets",
]
