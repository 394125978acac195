"""What pretraining is worth, by how many labelled examples there are: `python -m studies.worth`.

A pretrained encoder and the same one with fresh weights learn a task from the first hundred examples, the first
thousand, and all of them, and are measured on the same others. Fresh weights learn at the rate of
pretraining and for three times the epochs, as `finetune --from-scratch` has it.
"""

import sys
from collections.abc import Sequence
from typing import Any

from clozeworks.core.errors import InputError
from studies import figures
from studies.study import Study, finetune, mean_interval, read_numbers, workspace

SIZES = "100,1000,all"
STARTS = ("pretrained", "fresh")
EXAMPLE = "python -m studies.worth --model run --task classify --train train.jsonl --test dev.jsonl"


def run(
    seeds: Sequence[int] = (0, 1, 2),
    model: str = "",
    task: str = "classify",
    train: str = "",
    test: str = "",
    sizes: str = SIZES,
    length: str = "128",
    changes: Sequence[str] = (),
) -> dict[str, Any]:
    """The task's metric on the other examples, a list over the seeds for each number of rows and each start."""
    import clozeworks  # what a user calls, and nothing behind it

    fixed = dict(map(read_change, changes))
    encoder, longest = clozeworks.load(model), read_numbers("--max-length", length, 1)[0]
    scores: dict[str, dict[str, list[float]]] = {}
    name, measured = "", 0
    with workspace("worth") as folder:
        for size in sizes.split(","):
            rows = None if size.strip() == "all" else read_numbers("--sizes", size, 2)[0]
            scores[size] = {start: [] for start in STARTS}
            for start, seed in ((start, seed) for start in STARTS for seed in seeds):
                done = finetune(
                    task, encoder, train, test, out=folder / f"{size}-{start}-{seed}", limit=rows,
                    from_scratch=start == "fresh", max_length=longest, changes=fixed | {"train.seed": str(seed)},
                )  # fmt: skip
                name, measured = next(iter(done.metrics)), done.rows["dev"]
                scores[size][start].append(round(done.metrics[name], 4))
    return {
        "task": task,
        "metric": name,
        "measured": measured,
        "seeds": list(seeds),
        "scores": scores,
        "mean": {
            size: {start: mean_interval(values) for start, values in each.items()} for size, each in scores.items()
        },
    }


def read_change(text: str) -> tuple[str, str]:
    """PATH=VALUE, taken apart."""
    path, equals, value = text.partition("=")
    if not (path and equals and value):
        raise InputError("--set", text, "PATH=VALUE is needed", "such as train.learning_rate=1e-3")
    return path, value


def draw(results: dict[str, Any], path: str) -> None:
    """A bar the mean over the seeds and a dot each of them."""
    title = f"{results['task']} on {results['measured']:,} other rows, by rows to learn from"
    figures.grouped_bars(results["scores"], path, title, results["metric"])


STUDY = Study(
    name="worth",
    about="A pretrained encoder against fresh weights, by how many labelled examples there are.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    options={
        "--model": {"required": True, "metavar": "M", "help": "the pretrained encoder: a run or a directory"},
        "--task": {"default": "classify", "help": "classify, pair, tag, qa, choice (classify)"},
        "--train": {"required": True, "metavar": "FILE", "help": "labelled examples to learn from"},
        "--test": {"required": True, "metavar": "FILE", "help": "labelled examples to measure on"},
        "--sizes": {"default": SIZES, "help": f"how many examples to learn from ({SIZES})"},
        "--max-length": {"dest": "length", "default": "128", "help": "tokens of an example at most (128)"},
        "--set": {
            "dest": "changes",
            "action": "append",
            "default": [],
            "metavar": "PATH=VALUE",
            "help": "change a field of both, such as train.learning_rate=1e-3",
        },
    },
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
