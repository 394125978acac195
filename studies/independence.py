"""Two masked words that belong together, with a mask and in an order: `python -m studies.independence`.

A masked language model (Devlin et al. 2018) gives each of them a probability as if the others were not there, so of
"banking crisis" with both words masked it can say no more than which words are frequent. A model of tokens in an order
(Yang et al. 2019, 2.6) gives the second of them its probability with the first in sight. Here both learn text in which
compounds are planted (`corpus.compounds`), and each is asked for both words of a compound, at once and one after the
other, and for one of them with the other in sight.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.spec import walk
from clozeworks.data.batches.rows import Source
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate.heldout import evaluate
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.permuted_lm import PermutedLM
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.permute import Permute
from clozeworks.objectives.segments import DocSentences
from studies import asking, figures
from studies.corpora import compounds
from studies.study import Study, mean_difference, mean_interval, pretrain, search_rate, set_budget, workspace

STEPS, EXAMPLES = 800, 64  # steps, and rows in each
TOGETHER = 2  # sentences of a row
LENGTH = TOGETHER * compounds.WORDS + 2  # [CLS] sentences [SEP]
RATES = (3e-3, 6e-3)
BASES = {"masked": "bert_tiny", "permuted": "xlnet_mini"}  # the recipes that are made small
ASKS = {"masked": asking.Masked, "permuted": asking.Permuted}
ONE = math.log(len(compounds.COMPOUNDS))  # nats that tell which compound it is
IDEAL = {"at once": 2 * ONE, "in turn": ONE, "one hidden": 0.0}
EXAMPLE = "python -m studies.independence --seeds 0,1,2 --plot independence.svg"


def run(seeds: Sequence[int] = (0, 1, 2), steps: int = STEPS, rates: Sequence[float] = RATES) -> dict[str, Any]:
    """Surprise in nats on held-out compounds: {"surprise": {model: {asked: [one a seed]}}} with how it was measured.

    Each model learns at the rate that gave it the lower held-out loss of its own with the first seed.
    """
    surprises: dict[str, dict[str, list[float]]] = {}
    tried: dict[str, dict[str, float]] = {}
    with workspace("independence") as folder:
        data, heldout = texts(folder)
        for kind in BASES:

            def train_one(seed: int, rate: float, kind: str = kind) -> tuple[float, dict[str, float]]:
                return train(kind, data, heldout, out=folder / kind, seed=seed, steps=steps, rate=rate)

            every, tried[kind] = search_rate(train_one, lambda each: each[0], seeds, rates)
            surprises[kind] = {asked: [round(each[asked], 4) for _, each in every] for asked in IDEAL}
    gap = mean_difference(surprises["masked"]["at once"], surprises["permuted"]["in turn"])
    return {
        "steps": steps,
        "tokens_a_step": EXAMPLES * LENGTH,
        "seeds": list(seeds),
        "compounds": len(compounds.COMPOUNDS),
        "heldout_loss_by_rate": tried,
        "surprise": surprises,
        "ideal": {asked: round(value, 4) for asked, value in IDEAL.items()},
        "mean": {
            kind: {asked: mean_interval(values) for asked, values in each.items()} for kind, each in surprises.items()
        },
        "mean_masked_at_once_less_permuted_in_turn": gap,
    }


def texts(folder: Path, documents: int = 400) -> tuple[Path, Path]:
    """The text to learn from and another of the same kind, prepared with the tokenizer of the first."""
    import clozeworks  # what a user calls, and nothing behind it

    train, heldout = folder / "train", folder / "heldout"
    text = compounds.documents(documents, seed=0)
    clozeworks.prepare(text, train, tokenizer="words", vocab=256, lang="en", heldout=0)
    clozeworks.prepare(compounds.documents(60, seed=1), heldout, tokenizer=train, lang="en", heldout=0)
    return train, heldout


def train(
    kind: str, data: Path, heldout: Path, *, out: Path, seed: int, steps: int, rate: float
) -> tuple[float, dict[str, float]]:
    """Train a model; its own loss on held-out text, and its surprise at the compounds of it."""
    r = recipe_for(kind, seed, steps, rate)
    encoder, text = pretrain(r, data, out / f"{seed}-{rate}"), Corpus.open(heldout)
    vocabulary = encoder.vocabulary()
    loss = evaluate(encoder.model, text, r.objective, vocabulary)["loss"]
    article = Tokenizer.load(heldout).id(compounds.ARTICLE)
    assert article is not None
    tokens, first = places(Source(text, r.objective.segments, None, vocabulary, 0), article)
    return loss, surprise(ASKS[kind](encoder.model, vocabulary), tokens, first)


def places(source: Source, article: int) -> tuple[Tensor, Tensor]:
    """Rows of text [n, L] and the column [n] of the first word of one compound in each."""
    epoch = source.epoch(0)
    ragged = epoch.examples(np.arange(len(epoch.plan)))
    tokens = ragged.tokens.reshape(len(ragged), LENGTH).astype(np.int64)
    at = np.flatnonzero(tokens == article).reshape(len(ragged), TOGETHER) % LENGTH + 1
    chosen = at[np.arange(len(ragged)), np.arange(len(ragged)) % TOGETHER]
    return torch.from_numpy(tokens), torch.from_numpy(chosen)


def surprise(ask: asking.Ask, tokens: Tensor, first: Tensor) -> dict[str, float]:
    """Mean nats of two words masked at once, of the same one after the other (both orders), and of one masked."""
    second = first + 1
    asked = {
        "at once": asking.at_once(ask, tokens, first, second),
        "in turn": (asking.in_turn(ask, tokens, first, second) + asking.in_turn(ask, tokens, second, first)) / 2,
        "one hidden": (asking.alone(ask, tokens, first) + asking.alone(ask, tokens, second)) / 2,
    }
    return {name: -float(values.mean()) for name, values in asked.items()}


def recipe_for(kind: str, seed: int, steps: int, rate: float) -> Any:
    """Two layers of width 64 that learn to predict masked words and nothing else."""
    import clozeworks

    r = clozeworks.recipe(BASES[kind])
    r.name = f"independence_{kind}"
    block = r.encoder.stack.block_at(0)
    assert block.ffn is not None
    r.encoder.stack.depth, r.encoder.width, block.mixer.heads, block.ffn.inner = 2, 64, 4, 256
    for _, part in walk(r.encoder):
        if hasattr(part, "dropout"):
            setattr(part, "dropout", 0.0)  # noqa: B010
    r.encoder.init = 0.06  # 0.02 suits a width of 768
    masked = Objective(DocSentences(LENGTH), MaskTokens(), (MaskedLM(),))
    permuted = Objective(DocSentences(LENGTH), Permute(), (PermutedLM(),))
    r.objective = masked if kind == "masked" else permuted
    set_budget(r, seed=seed, steps=steps, batch_tokens=EXAMPLES * LENGTH, learning_rate=rate)
    return r


def draw(results: dict[str, Any], path: str) -> None:
    """Each model's surprises beside each other, a bar the mean over the seeds and a dot each of them."""
    words = {"at once": "both words at once", "in turn": "one after the other", "one hidden": "one, the other in sight"}
    models = {"masked": "masked language model", "permuted": "permutation language model"}
    groups = {
        models[kind]: {words[asked]: values for asked, values in each.items()}
        for kind, each in results["surprise"].items()
    }
    title, one = "What two masked words that belong together cost", f"log {results['compounds']}"
    figures.grouped_bars(groups, path, title, "nats, fewer are better", ONE, one)


STUDY = Study(
    name="independence",
    about="Two masked words that belong together, for a masked and for a permutation language model.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    steps=STEPS,
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
