"""The command line. What the commands take is in `commands/declared.py`, what each does in a module of its own there.

Nothing heavy is imported here. A command's module is imported when it runs, torch with it, and only after what
`doctor` found about this machine was applied.
"""

import errno
import importlib
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import NoReturn

from clozeworks.cli.arguments import Options, Parser
from clozeworks.cli.declared import COMMANDS, GROUPS, name_of
from clozeworks.core.errors import InputError, suggest


def main(words: Sequence[str] | None = None) -> int:
    """Run one command: 0 done, 2 bad input, 130 or 143 interrupted. A bug of ours is a traceback, and 1."""
    words = list(sys.argv[1:] if words is None else words)
    try:
        status = _run(words)
        sys.stdout.flush()
        return status
    except InputError as error:
        return _say(error)
    except OSError as error:
        if error.errno == errno.EPIPE:  # whoever read us has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        if error.filename is not None and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC):
            return _say(InputError(error.filename, error.strerror, "another place or right is needed", "check it"))
        raise
    except KeyboardInterrupt:
        print("\nstopped; the same command starts again, or goes on from its last checkpoint", file=sys.stderr)
        return 130


def leave() -> NoReturn:
    """The command as a process of its own.

    One of several that train together ends without the interpreter's farewell: threads of torch's communication still
    run in it, and a thread that meets a dying interpreter aborts the process.
    """
    status = main()
    if "WORLD_SIZE" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        print(overview())
        return 0
    if words[0] in ("--version", "version"):
        from clozeworks import __version__

        print(f"clozeworks {__version__}")
        return 0
    if words[0] not in COMMANDS:
        what = "option" if words[0].startswith("-") else "command"
        raise InputError("clozeworks", words[0], f"there is no such {what}", suggest(words[0], COMMANDS))
    declare = COMMANDS[words[0]]
    options = parser_of(words[0]).read(words[1:])
    options.command = words

    from clozeworks.machine import doctor

    learns = words[0] in ("pretrain", "quickstart")
    doctor.apply(doctor.remembered() or doctor.default(), learns)
    if "OMP_WAIT_POLICY" not in os.environ:
        # Waiting threads soon yield: on a busy machine the default spin makes training many times slower (LOG.md).
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    return importlib.import_module(f"clozeworks.cli.{declare.__name__}").run(options) or 0


def _say(error: InputError) -> int:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    sentence = Text.assemble(("error: ", "bold red"), str(error))
    console.print(sentence, soft_wrap=not console.is_terminal)  # a log wants one line, a terminal whole words
    return 2


def overview() -> str:
    lines = ["Build language encoders: from raw text to a BERT, every part interchangeable.", ""]
    lines += ["usage: clozeworks COMMAND [arguments]      clozeworks COMMAND --help", ""]
    for title, group in GROUPS.items():
        lines.append(title)
        for declare in group:
            lines.append(f"  {name_of(declare):<12}{about(declare)[0]}")
        lines.append("")
    return "\n".join([*lines, "New here? clozeworks quickstart"])


def parser_of(name: str) -> Parser:
    summary, *rest = about(COMMANDS[name])
    examples = [line for line in rest if line.startswith("clozeworks ")]
    more = " ".join(line for line in rest if line not in examples).strip()
    parser = Parser(name, "\n\n".join([summary, *filter(None, [textwrap.fill(more, 80)])]), examples)
    COMMANDS[name](parser)
    return parser


def about(declare: Callable[[Parser], None]) -> list[str]:
    """The lines of its docstring: a sentence, perhaps more, and examples."""
    return [line.strip() for line in (declare.__doc__ or "").strip().splitlines()]


__all__ = ["COMMANDS", "Options", "main", "overview", "parser_of"]
