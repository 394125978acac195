"""Compression: steps from a bundle to a smaller one, whose own recipe rebuilds it."""

from clozeworks.compress.data import Data
from clozeworks.compress.factorize import FactorizeEmbedding
from clozeworks.compress.feed_forward import PruneFeedForward
from clozeworks.compress.heads import PruneHeads
from clozeworks.compress.layers import DropLayers
from clozeworks.compress.quantize import Quantize
from clozeworks.compress.share import ShareLayers
from clozeworks.compress.step import Step, list_steps, parse_steps
from clozeworks.compress.training.distil import DistilOriginal
from clozeworks.compress.training.early_exit import EarlyExit
from clozeworks.compress.training.prune_weights import PruneWeights
from clozeworks.compress.training.quantization_aware import QuantizationAware
from clozeworks.compress.training.replace_modules import ReplaceModules
from clozeworks.compress.vocabulary import TrimVocabulary

__all__ = [
    "Data",
    "DistilOriginal",
    "DropLayers",
    "EarlyExit",
    "FactorizeEmbedding",
    "PruneFeedForward",
    "PruneHeads",
    "PruneWeights",
    "QuantizationAware",
    "Quantize",
    "ReplaceModules",
    "ShareLayers",
    "Step",
    "TrimVocabulary",
    "list_steps",
    "parse_steps",
]
