"""clozeworks quickstart"""

from pathlib import Path

from clozeworks import quickstart
from clozeworks.commands.arguments import Options
from clozeworks.commands.screen import screen


def run(options: Options) -> int:
    out = Path(options.out or f"quickstart-{options.lang}")
    return quickstart.run(options.lang, out, options.steps, options.seed, screen())
