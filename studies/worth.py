"""What pretraining is worth, by how many labelled rows there are: `python -m studies.worth`.

A pretrained encoder and the same one with fresh weights learn a task from the first hundred rows, the first thousand,
and all of them, and answer for the same other rows. Fresh weights learn at the rate of pretraining and for three times
the epochs, as `finetune --from-scratch` has it.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.plots import charts
from studies import script
from studies.independence import mean

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
    """The task's figure on the other rows, a list over the seeds for each number of rows and each start."""
    import clozeworks  # what a user calls, and nothing behind it

    fixed = dict(map(change_of, changes))
    encoder, longest = clozeworks.load(model), script.numbers("--max-length", length, 1)[0]
    found: dict[str, dict[str, list[float]]] = {}
    name, measured = "", 0
    with tempfile.TemporaryDirectory(prefix="clozeworks-worth-") as place:
        for size in sizes.split(","):
            rows = None if size.strip() == "all" else script.numbers("--sizes", size, 2)[0]
            found[size] = {start: [] for start in STARTS}
            for start, seed in ((start, seed) for start in STARTS for seed in seeds):
                done = clozeworks.finetune(
                    task, encoder, train, test, out=Path(place) / f"{size}-{start}-{seed}", rows=rows,
                    from_scratch=start == "fresh", length=longest, progress=False,
                    changes=fixed | {"train.seed": str(seed)},
                )  # fmt: skip
                if not done.finished:
                    raise SystemExit(128 + done.signal)
                name, measured = next(iter(done.metrics)), done.rows["dev"]
                found[size][start].append(round(done.metrics[name], 4))
    return {
        "task": task,
        "figure": name,
        "measured": measured,
        "seeds": list(seeds),
        "found": found,
        "mean": {size: {start: mean(values) for start, values in each.items()} for size, each in found.items()},
    }


def change_of(text: str) -> tuple[str, str]:
    """PATH=VALUE, taken apart."""
    path, equals, value = text.partition("=")
    if not (path and equals and value):
        raise InputError("--set", text, "PATH=VALUE is needed", "such as train.learning_rate=1e-3")
    return path, value


def draw(figures: dict[str, Any], path: str) -> None:
    """A bar the mean over the seeds and a dot each of them."""
    title = f"{figures['task']} on {figures['measured']:,} other rows, by rows to learn from"
    charts.grouped_bars(figures["found"], path, title, figures["figure"])


def main(words: Sequence[str] | None = None) -> int:
    """0 done, 2 bad input, told in one sentence."""
    about = "A pretrained encoder against fresh weights, by how many labelled rows there are."
    parser = script.Arguments("worth", about, EXAMPLE, None)
    parser.add_argument("--model", required=True, metavar="M", help="the pretrained encoder: a run or a directory")
    parser.add_argument("--task", default="classify", help="classify, pair, tag, span, choice (classify)")
    parser.add_argument("--train", required=True, metavar="FILE", help="labelled rows to learn from")
    parser.add_argument("--test", required=True, metavar="FILE", help="labelled rows to measure on")
    parser.add_argument("--sizes", default=SIZES, help=f"how many rows to learn from ({SIZES})")
    parser.add_argument("--max-length", default="128", help="tokens of an example at most (128)")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="PATH=VALUE",
                        help="change a field of both, such as train.learning_rate=1e-3")  # fmt: skip
    return script.answer(parser, words, run, draw)


if __name__ == "__main__":
    sys.exit(main())
