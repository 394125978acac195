"""clozeworks quickstart"""

from pathlib import Path

from clozeworks import quickstart
from clozeworks.cli.arguments import Options
from clozeworks.screen.console import screen


def run(options: Options) -> int:
    out = Path(options.out or f"quickstart-{options.lang}")
    return quickstart.run(options.lang, out, options.steps, options.seed, screen())
