"""A model in a fresh process: how long it takes to load, and how much memory that and one answer need.

Run as `python -m clozeworks.compress.start_up DIRECTORY`, with the short example as JSON on standard input.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from clozeworks.core.child_process import child_environment, python_command

SECONDS = 300  # that a child may take
UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


def start_up(directory: Path, short: Any) -> dict[str, float] | None:
    """load_seconds (of the processor), peak_memory_mb (of the whole process), model_memory_mb (without what the
    libraries took before); None where no child can run."""
    command = python_command("-m", "clozeworks.compress.start_up", str(directory.absolute()))
    try:
        done = subprocess.run(
            command,
            input=json.dumps(short),
            env=child_environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return None


def main() -> None:
    """In the child: load, and answer once."""
    from clozeworks.core.spec import known_parts
    from clozeworks.inference.text_encoder import load

    known_parts()  # what a recipe may name is imported once, whatever the model
    short, before, begin = json.load(sys.stdin), _peak(), time.process_time()
    encoder = load(sys.argv[1])
    seconds = time.process_time() - begin
    if encoder.recipe.task is not None:
        encoder.predict([short])
    elif encoder.recipe.decoder is not None:
        encoder.translate([short])
    else:
        encoder.encode([short])
    peak = _peak()
    print(json.dumps({"load_seconds": seconds, "peak_memory_mb": peak, "model_memory_mb": peak - before}))


def _peak() -> float:
    """The most memory that this process has held, in MB."""
    status = Path("/proc/self/status")  # what getrusage says begins with what the parent held before the child was one
    if status.is_file():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    import resource  # which Windows lacks: there the child fails, and nothing is said of memory

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 1e6


if __name__ == "__main__":
    main()
