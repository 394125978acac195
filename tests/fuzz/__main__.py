"""Random cases without end: `python -m tests.fuzz [compositions] [inputs] [--cases N] [--seed S]`."""

import argparse
import importlib
import signal
import sys
import time
import traceback
from collections.abc import Callable

FUZZERS = ("compositions", "inputs")
LIMIT = 60  # seconds of the processor that a case may take, which a busy machine does not change
WAIT = 1200  # seconds, whoever else is busy, after which a case waits for something that never comes


def guarded(run_case: Callable[[int], str | None], seed: int) -> str | None:
    """A case, which fails too where it raises or does not end."""
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    signal.alarm(WAIT)
    try:
        return run_case(seed)
    except Exception:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.alarm(0)


def stop(number: int, frame: object) -> None:
    given = f"{LIMIT} seconds of the processor" if number == signal.SIGVTALRM else f"{WAIT} seconds"
    raise TimeoutError(f"a case that takes more than {given}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Try random cases; print what fails.")
    parser.add_argument("fuzzers", nargs="*", metavar="FUZZER", help=f"some of {', '.join(FUZZERS)}; all by default")
    parser.add_argument("--cases", type=int, default=200, help="of each fuzzer")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first case; another each time")
    options = parser.parse_args()
    if unknown := set(options.fuzzers) - set(FUZZERS):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(FUZZERS)}")
    for number in (signal.SIGVTALRM, signal.SIGALRM):
        signal.signal(number, stop)
    failures = 0
    for name in options.fuzzers or FUZZERS:
        fuzzer = importlib.import_module(f"tests.fuzz.{name}")
        failed = []
        for seed in range(options.seed, options.seed + options.cases):
            if (wrong := guarded(fuzzer.run_case, seed)) is not None:
                failed.append(seed)
                print(f"--- {fuzzer.NAME}, seed {seed}\n{wrong}\n", flush=True)
        shown = f", seeds {', '.join(map(str, failed))}" if failed else ""
        print(f"{fuzzer.NAME}: {options.cases} cases from seed {options.seed}, {len(failed)} failed{shown}")
        failures += len(failed)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
