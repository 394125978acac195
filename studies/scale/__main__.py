"""What 8, 64 and 512 GPUs would need to pretrain a recipe, on paper: `python -m studies.scale`.

Bytes and FLOPs are the library's own estimate of a recipe; everything about machines is an assumption that
`--set` changes. Prints a page in Markdown, which for the defaults is docs/scale.md, or with `--json` one object.
"""

import json
import sys
from collections.abc import Sequence

from clozeworks.core.errors import InputError
from studies.scale.cluster import assume
from studies.scale.estimate import estimate
from studies.scale.growth import Plan, as_json, plan
from studies.scale.page import page
from studies.scale.traffic import levels
from studies.study import Arguments

ABOUT = "What so many GPUs would need to pretrain a recipe, on paper, from exact counts and stated assumptions."
EXAMPLE = "python -m studies.scale --gpus 8,64,512 --recipe bert_large --set gpu.memory=40e9"
MOST = 1 << 20  # GPUs


def plan_for(name: str = "bert_large", gpus: Sequence[int] = (8, 64, 512), settings: Sequence[str] = ()) -> Plan:
    """The plan of a recipe by name."""
    cluster = assume(settings)
    for ranks in gpus:
        levels(ranks, cluster.node)
    return plan(name, estimate(name, cluster.work.micro), cluster, gpus)


def _gpus(text: str) -> list[int]:
    numbers = [int(word) if word.strip().isdecimal() else 0 for word in text.split(",")]
    if not all(1 <= number <= MOST for number in numbers):
        raise InputError(
            "--gpus", text or "nothing", f"whole numbers from 1 to {MOST:,} are needed", "such as 8,64,512"
        )
    return list(dict.fromkeys(numbers))


def main(words: Sequence[str] | None = None) -> int:
    """0 done, 2 bad input, reported in one sentence."""
    parser = Arguments("scale", ABOUT, EXAMPLE)
    parser.add_argument("--gpus", default="8,64,512", help="numbers of GPUs, with commas")
    parser.add_argument("--recipe", default="bert_large", help="name of a recipe")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change an assumption")
    parser.add_argument("--json", action="store_true", help="one object with every plan, in bytes and seconds")
    try:
        options = parser.parse_args(words)
        planned = plan_for(options.recipe, _gpus(options.gpus), options.set)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sys.stdout.write(json.dumps(as_json(planned), allow_nan=False) + "\n" if options.json else page(planned))
    return 0


if __name__ == "__main__":
    sys.exit(main())
