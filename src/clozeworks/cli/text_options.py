"""How the text named on a command line is to be read."""

from typing import Any

from clozeworks.cli.arguments import Options
from clozeworks.core.errors import InputError


def reading(options: Options) -> dict[str, Any]:
    """How the text is to be read, as `prepare` and `check` take it."""
    pairs = None
    if options.pairs is not None:
        pairs = tuple(name.strip() for name in options.pairs.split(","))
        if len(pairs) != 2 or not all(pairs) or pairs[0] == pairs[1]:
            raise InputError(
                "--pairs", options.pairs, "two different field names are needed", "for example: --pairs en,de"
            )
    names = ("field", "encoding", "errors", "unicode", "unwrap")
    return {"pairs": pairs, **{name: getattr(options, name) for name in names}}
