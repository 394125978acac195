"""clozeworks vectors cbow"""

from dataclasses import dataclass

from clozeworks.cli.arguments import option, positive
from clozeworks.cli.vectors.training import WindowOptions, train


@dataclass(kw_only=True)
class Options(WindowOptions):
    """Train word2vec CBOW vectors

    The words around a word predict it together (continuous bag of words). The ending of --out is the format:
    .safetensors, .txt or .vec (text of word2vec), .bin (its bytes).

    clozeworks vectors cbow corpus.txt --out words.safetensors
    clozeworks vectors cbow --corpus en --out words.txt --dim 50 --phrase-passes 2
    """

    learning_rate: float | None = option("learning rate", type=positive, metavar="R", otherwise=0.05)


def run(options: Options) -> None:
    """Train by CBOW."""
    from clozeworks.vectors.train import cbow

    train(options, cbow)
