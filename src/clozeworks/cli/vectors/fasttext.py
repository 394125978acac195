"""clozeworks vectors fasttext"""

from dataclasses import dataclass

from clozeworks.cli.arguments import integer, option, positive
from clozeworks.cli.vectors.training import WindowOptions, train


@dataclass(kw_only=True)
class Options(WindowOptions):
    """Train fastText vectors: of words and their n-grams

    Skip-gram (or CBOW) with character n-grams, so that words that never occurred have a vector, too. These n-grams are
    kept in .safetensors alone; .txt, .vec and .bin have the words.

    clozeworks vectors fasttext corpus.txt --out words.safetensors
    clozeworks vectors fasttext corpus.txt --out words.safetensors --minn 2 --maxn 5 --cbow
    """

    learning_rate: float | None = option(
        "learning rate", type=positive, metavar="R", otherwise="0.025; 0.05 with --cbow"
    )
    minn: int | None = integer("letters of the shortest n-grams", otherwise=3)
    maxn: int | None = integer("letters of the longest n-grams", otherwise=6)
    bucket: int | None = integer("number of hash buckets that n-grams share", otherwise="2,000,000")
    cbow: bool = option("CBOW instead of skip-gram", False)


def run(options: Options) -> None:
    """Train with n-grams."""
    from clozeworks.vectors.subwords import Subwords
    from clozeworks.vectors.train import cbow, skipgram

    grams = {"shortest": options.minn, "longest": options.maxn, "buckets": options.bucket}
    train(
        options,
        cbow if options.cbow else skipgram,
        subwords=Subwords(**{name: value for name, value in grams.items() if value is not None}),
    )
