"""The matrix of faults: `python -m tests.faults [--quick] [--only KIND ...] [--json FILE] [--page FILE]`.

This process imports everything and computes nothing, so what it forks starts at once.
"""

import argparse
import sys
from pathlib import Path

from tests.faults import matrix, page


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Break things, and see what holds.")
    parser.add_argument("--quick", action="store_true", help="the small scale of the fast tests")
    parser.add_argument("--only", nargs="+", choices=list(matrix.KINDS), default=list(matrix.KINDS), metavar="KIND")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures; what it has of other kinds stays")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the table into a page")
    options = parser.parse_args()
    results = matrix.run(options.only, options.quick)
    broken = [sentence for one in results["kinds"].values() for sentence in one["broken"]]
    if options.json:
        results = page.write_json(options.json, results)
    if options.page:
        page.write(options.page, results)
    print(page.table(results))
    for sentence in broken:
        print(f"broken: {sentence}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
