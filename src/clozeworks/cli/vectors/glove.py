"""clozeworks vectors glove"""

from dataclasses import dataclass

from clozeworks.cli.arguments import integer, number, option, positive
from clozeworks.cli.vectors.training import TrainingOptions, train


@dataclass(kw_only=True)
class Options(TrainingOptions):
    """Train GloVe vectors from co-occurrence counts

    Pairs of words are counted within a window, and vectors are fitted to the logarithms of their counts. The ending of
    --out is the format: .safetensors, .txt or .vec (text of word2vec), .bin (its bytes).

    clozeworks vectors glove corpus.txt --out words.safetensors
    clozeworks vectors glove corpus.txt --out words.txt --dim 50 --no-header
    """

    window: int | None = integer("context window: words on each side", otherwise=15)
    epochs: int | None = integer("passes over the pairs", otherwise=25)
    learning_rate: float | None = option("learning rate", type=positive, metavar="R", otherwise=0.05)
    x_max: float | None = option(
        "count above which a pair has the full weight", type=number, metavar="X", otherwise=100
    )
    memory_mb: int | None = integer("megabytes to count pairs in", metavar="MB", otherwise=512)


def run(options: Options) -> None:
    """Count pairs, and fit vectors to them."""
    from clozeworks.vectors.least_squares import least_squares

    train(options, least_squares, x_max=options.x_max, memory=options.memory_mb and options.memory_mb << 20)
