"""clozeworks bench"""

from pathlib import Path

from clozeworks import bench
from clozeworks.commands.arguments import Options


def run(options: Options) -> int:
    out, data = (Path(given) if given else None for given in (options.out, options.data))
    return bench.main(options.name, options.quick, options.json, out, data)
