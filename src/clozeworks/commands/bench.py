"""clozeworks bench"""

from pathlib import Path

from clozeworks import bench
from clozeworks.commands.arguments import Options


def run(options: Options) -> int:
    return bench.main(
        options.name,
        options.quick,
        options.json,
        Path(options.out) if options.out else None,
        data=options.data,
        cells=tuple(options.only),
        profile=options.profile,
        plot=options.plot,
        dropout=options.dropout,
        judge=tuple(options.judge),
    )
