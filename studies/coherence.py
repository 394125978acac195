"""Next sentence against sentence order, on text whose cues are known: `python -m studies.coherence`.

Of a pair of sentences one can ask whether the second follows the first or comes from elsewhere (next sentence,
Devlin et al. 2018), or whether the two are the right way round (sentence order, Lan et al. 2019). The claim: the first
question is answered by the topic alone and teaches nothing about order, while what order teaches is of use for the
first. Here a small encoder learns one of them, with nothing else to learn, and is asked both; the head and its labels
are the same (0 coherent, 1 not), so neither is trained again.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate.heldout import evaluate
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.objective import Objective, Segments
from clozeworks.objectives.segments import SentenceOrder, SentencePair
from studies import figures
from studies.corpora import planted
from studies.study import Study, pretrain, set_budget, workspace

STEPS, EXAMPLES = 1500, 64  # steps, and pairs in each
LENGTH = 2 * planted.WORDS + 3  # [CLS] a sentence [SEP] a sentence [SEP]
TASKS: dict[str, Segments] = {"next": SentencePair(LENGTH), "order": SentenceOrder(LENGTH)}
NAMES = {"next": "next sentence", "order": "sentence order"}
EXAMPLE = "python -m studies.coherence --seeds 0,1,2 --plot coherence.svg"


def run(seeds: Sequence[int] = (0, 1, 2), steps: int = STEPS) -> dict[str, Any]:
    """Accuracy on held-out pairs: {"trained": {task: {"asked": {task: [one a seed]}}}} with how it was measured."""
    accuracies: dict[str, dict[str, list[float]]] = {task: {asked: [] for asked in TASKS} for task in TASKS}
    with workspace("coherence") as folder:
        text, heldout = texts(folder)
        for task in TASKS:
            for seed in seeds:
                scores = train(task, text, heldout, out=folder / f"{task}-{seed}", seed=seed, steps=steps)
                for asked, accuracy in scores.items():
                    accuracies[task][asked].append(round(accuracy, 4))
    return {"steps": steps, "pairs_a_step": EXAMPLES, "seeds": list(seeds), "accuracy": accuracies}


def texts(folder: Path, stories: int = 500) -> tuple[Path, Path]:
    """The text to learn from and another of the same kind, prepared with the tokenizer of the first."""
    import clozeworks  # what a user calls, and nothing behind it

    train, heldout = folder / "train", folder / "heldout"
    clozeworks.prepare(planted.documents(stories, seed=0), train, tokenizer="words", vocab=64, lang="en", heldout=0)
    clozeworks.prepare(planted.documents(60, seed=1), heldout, tokenizer=train, lang="en", heldout=0)
    return train, heldout


def train(task: str, data: Path, heldout: Path, *, out: Path, seed: int, steps: int) -> dict[str, float]:
    """Train on one task; the accuracy on each."""
    encoder, text = pretrain(recipe_for(task, seed, steps), data, out), Corpus.open(heldout)
    objectives = {name: Objective(segments, None, (SentenceRelation(),)) for name, segments in TASKS.items()}
    metrics = {name: evaluate(encoder.model, text, each, encoder.vocabulary()) for name, each in objectives.items()}
    return {name: each["pair_accuracy"] for name, each in metrics.items()}


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
    set_budget(r, seed=seed, steps=steps, batch_tokens=EXAMPLES * LENGTH)
    return r


def draw(results: dict[str, Any], path: str) -> None:
    """Each training's accuracies beside each other, a bar the mean over the seeds and a dot each of them."""
    bars = {f"trained on {NAMES[task]}": asked for task, asked in results["accuracy"].items()}
    groups = {
        group: {f"asked {NAMES[name]}": values for name, values in asked.items()} for group, asked in bars.items()
    }
    figures.grouped_bars(groups, path, "What a pair of sentences teaches", "held-out accuracy", 0.5, "a coin")


STUDY = Study(
    name="coherence",
    about="What next sentence prediction and sentence order prediction teach, on text with planted cues.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    steps=STEPS,
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
