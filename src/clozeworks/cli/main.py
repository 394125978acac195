"""The command line: the table of commands, each in a file of its own beside this one.

Nothing heavy is imported here, nor by the files of the commands before they run: torch comes after what `doctor` found
about this machine was applied.
"""

import errno
import functools
import importlib
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import NoReturn, TextIO

from clozeworks.cli.arguments import Parser, read_docstring
from clozeworks.core.errors import InputError, is_panic, suggest

VECTORS = ("skipgram", "cbow", "fasttext", "glove", "phrases", "evaluate", "similar", "convert")
GROUPS = {
    "get started": ("quickstart", "doctor"),
    "models": ("recipes", "show", "diff"),
    "data": ("prepare", "examples"),
    "pretraining": ("pretrain", "runs", "evaluate", "inspect"),
    "fine-tuning": ("finetune", "predict"),
    "compression": ("compress",),
    "using a model": ("encode", "fill-mask", "generate", "translate"),
    "exchange": ("import", "export", "convert"),
    "word vectors": tuple(f"vectors {name}" for name in VECTORS),
}
COMMANDS = tuple(name for group in GROUPS.values() for name in group)
HELP = ("--help", "-h", "help")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command: 0 done, 2 bad input, 130 or 143 interrupted, 141 if whoever reads its output has gone.

    A bug of ours is a traceback, and 1.
    """
    words = list(sys.argv[1:] if words is None else words)
    try:
        command = read_command(words)
        status = 0 if command is None else command() or 0
        sys.stdout.flush()
        return status
    except InputError as error:
        return _report(error)
    except (OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, BrokenPipeError):  # whoever read us has seen enough
            _discard(sys.stdout)
            return 141
        explained = _explain(error)
        if explained is None:
            raise
        return _report(explained)
    except BaseException as error:
        if is_panic(error):
            given = f"a library that reads them gave up ({error})"
            return _report(InputError("texts or tokenizer", given, "sound ones are needed", "check tokenizer.json"))
        if not isinstance(error, KeyboardInterrupt):
            raise
        print("\nstopped; the same command starts again, or resumes from its last checkpoint", file=sys.stderr)
        return 130


def leave() -> NoReturn:
    """The command as a process of its own.

    One of several that train together ends without the interpreter's farewell: threads of torch's communication still
    run in it, and a thread that meets a dying interpreter aborts the process.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # whoever ignores it keeps ignoring it
        signal.signal(signal.SIGINT, _interrupt)
    status = main() if _open_streams() else 2
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the interpreter's farewell is not worth a traceback
    if "WORLD_SIZE" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Unwind once. Ctrl-C again ends the process there and then: clean-up that is interrupted may wait for ever."""
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _open_streams() -> bool:
    """Whether there is a standard output.

    A closed descriptor would be given to the next file that is opened, and what some library prints would stand in a
    checkpoint: the null device takes its place. What a terminal has no letters for is shown as escapes.
    """
    closed = [number for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)) if stream is None]
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor: the closed one
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
        return True
    todo = "redirect it to a file or to /dev/null"
    _report(InputError("standard output", "closed", "a place for what is printed is needed", todo))
    return False


def read_command(words: list[str]) -> Callable[[], int | None] | None:
    """The command that the words name, with its options, and this machine set for it; None where help was all."""
    if words[:1] == ["help"] and len(words) > 1:
        words = [*words[1:], "--help"]
    if not words or words[0] in HELP:
        print(overview())
        return None
    if words[0] in ("--version", "version"):
        from clozeworks import __version__

        print(f"clozeworks {__version__}")
        return None
    if len(words) == 1 or words[1] in HELP:
        below = {title: names for title, names in GROUPS.items() if names[0].startswith(f"{words[0]} ")}
        if below:
            print(overview(below))
            return None
    name = find_command(words)
    options = parser_of(name).read(words[len(name.split()) :])
    options.words = words
    _check_working_directory()

    from clozeworks.machine import doctor

    learns = name in ("pretrain", "quickstart")
    verdict = doctor.remembered()
    if verdict is None and options.wants_verdict():
        print("measuring this machine, about seventeen seconds, once", file=sys.stderr)
        verdict = doctor.probe()
    doctor.apply(verdict or doctor.default(), learns)
    if "OMP_WAIT_POLICY" not in os.environ:
        # Waiting threads soon yield: on a busy machine the default spin makes training many times slower (LOG.md).
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    return functools.partial(load_command(name).run, options)


def find_command(words: Sequence[str]) -> str:
    """The command that the words begin with: one word, or two where several have the same first one."""
    for count in (1, 2):
        if " ".join(words[:count]) in COMMANDS:
            return " ".join(words[:count])
    below = [name.split()[1] for name in COMMANDS if name.startswith(f"{words[0]} ")]
    if below:
        raise InputError(f"clozeworks {words[0]}", words[1], "there is no such command", suggest(words[1], below))
    what = "option" if words[0].startswith("-") else "command"
    known = dict.fromkeys(name.split()[0] for name in COMMANDS)
    raise InputError("clozeworks", words[0], f"there is no such {what}", suggest(words[0], known))


def load_command(name: str) -> ModuleType:
    """The module of a command, with its `Options` and `run`."""
    module = "import_" if name == "import" else name.replace(" ", ".").replace("-", "_")
    return importlib.import_module(f"clozeworks.cli.{module}")


def parser_of(name: str) -> Parser:
    return Parser(name, load_command(name).Options)


def overview(groups: dict[str, tuple[str, ...]] = GROUPS) -> str:
    """Every command with its summary."""
    lines = ["Build language encoders: from raw text to a BERT, every part interchangeable.", ""]
    lines += ["usage: clozeworks COMMAND [options]      clozeworks COMMAND --help", ""]
    for title, names in groups.items():
        lines.append(title)
        lines += [f"  {name:<18}{read_docstring(load_command(name).Options)[0]}" for name in names]
        lines.append("")
    return "\n".join([*lines, "New here? clozeworks quickstart"])


def _check_working_directory() -> None:
    """Refuse to start where there is no directory: libraries would fail in words of their own."""
    try:
        os.getcwd()
    except OSError as error:
        given = f"it cannot be found ({error.strerror})"
        raise InputError("working directory", given, "one that exists is needed", "cd to another") from None


def _explain(error: OSError | MemoryError | RuntimeError) -> InputError | None:
    """The sentence for what a user can mend; None for a bug of ours."""
    if isinstance(error, MemoryError) or re.search(r"can't allocate memory|out of memory", str(error)):
        todo = "use less text, a smaller batch or model, or another machine"
        return InputError("memory", "all that this process may have is used", "more is needed", todo)
    if not isinstance(error, OSError):
        return None
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF):
        _discard(sys.stdout)  # files are written by `atomic_io`, which explains such failures itself
        return InputError("standard output", error.strerror, "a place that takes it is needed", "redirect it elsewhere")
    if error.filename is not None and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC):
        return InputError(error.filename, error.strerror, "another place or right is needed", "check it")
    return None


def _discard(stream: TextIO) -> None:
    """Let go what a stream still holds: the interpreter would complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _report(error: InputError) -> int:
    from rich.text import Text

    from clozeworks.screen.console import screen

    console = screen(stderr=True)
    sentence = Text.assemble(("error: ", "bold red"), str(error))
    try:
        console.print(sentence, soft_wrap=not console.is_terminal)  # a log wants one line, a terminal whole words
    except OSError:  # there is nobody to report to; the exit code is
        _discard(sys.stderr)
    return 2
