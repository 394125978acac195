"""Next sentence against sentence order, on text whose cues are known: `python -m studies.coherence`.

Of a pair of sentences one can ask whether the second follows the first or comes from elsewhere (next sentence,
Devlin et al. 2018), or whether the two are the right way round (sentence order, Lan et al. 2019). The claim: the first
question is answered by the topic alone and teaches nothing about order, while what order teaches is of use for the
first. Here a small encoder learns one of them, with nothing else to learn, and is asked both; the head and its labels
are the same (0 coherent, 1 not), so neither is trained again.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate.heldout import evaluate
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.objective import Objective, Segments
from clozeworks.objectives.segments import SentenceOrder, SentencePair
from clozeworks.plots import charts
from studies import script
from studies.corpora import planted

STEPS, EXAMPLES = 1500, 64  # steps, and pairs in each
LENGTH = 2 * planted.WORDS + 3  # [CLS] a sentence [SEP] a sentence [SEP]
TASKS: dict[str, Segments] = {"next": SentencePair(LENGTH), "order": SentenceOrder(LENGTH)}
NAMES = {"next": "next sentence", "order": "sentence order"}
EXAMPLE = "python -m studies.coherence --seeds 0,1,2 --plot coherence.svg"


def run(seeds: Sequence[int] = (0, 1, 2), steps: int = STEPS) -> dict[str, Any]:
    """Accuracy on held-out pairs: {"trained": {task: {"asked": {task: [one a seed]}}}} with how it was measured."""
    found: dict[str, dict[str, list[float]]] = {task: {asked: [] for asked in TASKS} for task in TASKS}
    with tempfile.TemporaryDirectory(prefix="clozeworks-coherence-") as name:
        train, heldout = texts(Path(name))
        for task in TASKS:
            for seed in seeds:
                for asked, accuracy in learnt(task, train, heldout, Path(name) / f"{task}-{seed}", seed, steps).items():
                    found[task][asked].append(round(accuracy, 4))
    return {"steps": steps, "pairs_a_step": EXAMPLES, "seeds": list(seeds), "accuracy": found}


def texts(folder: Path, stories: int = 500) -> tuple[Path, Path]:
    """The text to learn from and another of the same kind, prepared with the tokenizer of the first."""
    import clozeworks  # what a user calls, and nothing behind it

    train, heldout = folder / "train", folder / "heldout"
    clozeworks.prepare(planted.documents(stories, seed=0), train, tokenizer="words", vocab=64, lang="en", heldout=0)
    clozeworks.prepare(planted.documents(60, seed=1), heldout, tokenizer=train, lang="en", heldout=0)
    return train, heldout


def learnt(task: str, train: Path, heldout: Path, out: Path, seed: int, steps: int) -> dict[str, float]:
    """Train on one task; the accuracy on each."""
    encoder, text = script.trained(recipe_for(task, seed, steps), train, out), Corpus.open(heldout)
    objectives = {name: Objective(segments, None, (SentenceRelation(),)) for name, segments in TASKS.items()}
    figures = {name: evaluate(encoder.model, text, each, encoder.vocabulary()) for name, each in objectives.items()}
    return {name: figure["pair_accuracy"] for name, figure in figures.items()}


def recipe_for(task: str, seed: int, steps: int) -> Any:
    """Two layers of width 64 that learn the relation of two sentences and nothing else."""
    import clozeworks

    r = clozeworks.recipe("bert_tiny")
    r.name = f"coherence_{task}"
    block = r.encoder.stack.block_at(0)
    assert block.ffn is not None
    r.encoder.width, block.mixer.heads, block.ffn.inner = 64, 4, 256
    r.encoder.embed.dropout = block.dropout = block.mixer.dropout = 0.0
    r.encoder.init = 0.06  # 0.02 suits a width of 768
    r.objective = Objective(TASKS[task], None, (SentenceRelation(),))
    r.train.batch_tokens = EXAMPLES * LENGTH
    r.train.steps, r.train.seed = steps, seed
    r.train.save_every = r.train.evaluate_every = steps
    r.train.precision = "fp32"
    return r


def draw(figures: dict[str, Any], path: str) -> None:
    """Each training's accuracies beside each other, a bar the mean over the seeds and a dot each of them."""
    bars = {f"trained on {NAMES[task]}": asked for task, asked in figures["accuracy"].items()}
    groups = {
        group: {f"asked {NAMES[name]}": values for name, values in asked.items()} for group, asked in bars.items()
    }
    charts.grouped_bars(groups, path, "What a pair of sentences teaches", "held-out accuracy", 0.5, "a coin")


def main(words: Sequence[str] | None = None) -> int:
    """0 done, 2 bad input, told in one sentence."""
    about = "What next sentence prediction and sentence order prediction teach, on text with planted cues."
    return script.answer(script.Arguments("coherence", about, EXAMPLE, STEPS), words, run, draw)


if __name__ == "__main__":
    sys.exit(main())
