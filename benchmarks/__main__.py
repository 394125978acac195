"""The command: `make bench ARGS="pretrain --quick"`, or `python -m benchmarks pretrain --quick`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import benchmarks
from clozeworks.core.errors import InputError

EPILOG = """examples:
  python -m benchmarks
  python -m benchmarks pretrain --quick
  python -m benchmarks pretrain --profile --only mini-8k base-512
  python -m benchmarks lm --only gpt
  python -m benchmarks learning --data data
  python -m benchmarks prepare --data corpus.jsonl
  python -m benchmarks xl --plot xl.svg
  python -m benchmarks long --dropout 0.1
  python -m benchmarks vectors --judge pairs.txt analogies.txt
  python -m benchmarks int8 --model all-MiniLM-L6-v2 --data wiki.jsonl"""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure clozeworks and its peers on this machine, in one run, in turns.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a benchmark; without it they are listed")
    parser.add_argument("--quick", action="store_true", help="a smaller one, for a first look")
    parser.add_argument("--profile", action="store_true", help="pretrain: where our own time goes, by part")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="CELL",
        help="pretrain, lm, tune, vectors, int8: some cells; learning: some sides",
    )
    parser.add_argument(
        "--data", metavar="FILE", help="prepare, quality, learning, vectors, int8: your own text (default: embedded)"
    )
    parser.add_argument("--judge", nargs="+", default=[], metavar="FILE", help="vectors: similarity and analogy files")
    parser.add_argument("--plot", metavar="FILE", help="xl, long: draw a plot, too: .svg, .png or .pdf")
    parser.add_argument("--dropout", type=float, metavar="RATE", help="long: dropout on every side (default: 0)")
    parser.add_argument("--model", metavar="DIR", help="int8: a BERT that transformers loads (default: random weights)")
    parser.add_argument("--keep", metavar="FILE", help="learning: finished runs; the same command resumes")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the metrics there, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object on one line")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run one benchmark: 0 done, 2 bad input."""
    options = parser().parse_args(words)
    more = {name: getattr(options, name) for name in ("data", "profile", "plot", "dropout", "keep", "model")}
    more |= {"cells": tuple(options.only), "judge": tuple(options.judge)}
    try:
        return benchmarks.main(options.name, options.quick, options.json, options.out, **more)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
