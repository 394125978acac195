"""clozeworks vectors skipgram"""

from dataclasses import dataclass

from clozeworks.cli.arguments import option, positive
from clozeworks.cli.vectors.training import WindowOptions, train


@dataclass(kw_only=True)
class Options(WindowOptions):
    """Train word2vec skip-gram vectors

    Each word predicts the words around it. The ending of --out is the format: .safetensors, .txt or .vec
    (text of word2vec), .bin (its bytes).

    clozeworks vectors skipgram corpus.txt --out words.safetensors
    clozeworks vectors skipgram --corpus en --out words.txt --dim 50 --phrase-passes 2
    """

    learning_rate: float | None = option("learning rate", type=positive, metavar="R", otherwise=0.025)


def run(options: Options) -> None:
    """Train by skip-gram."""
    from clozeworks.vectors.train import skipgram

    train(options, skipgram)
