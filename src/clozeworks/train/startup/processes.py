"""A command in several processes of this machine, which train together, watched until the last has ended.

They get the environment variables that torchrun would set. torchrun itself starts a group again after any failure, bad
input too, and gives it thirty seconds to save when it is asked to stop; here a refusal is reported once, and a save
takes the time it takes. A process that is lost (killed by a signal, by a lack of memory) ends the others, and the group
begins again from its newest checkpoint.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import IO

from clozeworks.core.child_process import child_environment, python_command
from clozeworks.train.stop import QUESTION, SIGNALS, SignalHandlers

RESTARTS = 3
LOST = 76  # the exit code of a process that could not continue because another was gone
GRACE = 5.0  # seconds for the others to say why they end, too
LEFT = (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)  # done, or saved and stopped
KILLED = (-signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM)  # by others: the process had nothing to say


def run(words: Sequence[str], size: int) -> int:
    """Start `clozeworks WORDS` so many times; the exit code is that of the first process, or of the one that failed."""
    for attempt in range(RESTARTS + 1):
        with Group(words, size) as group:
            code = group.wait()
        if code >= 0:
            return code
        if group.asked:  # before it could save
            return 128 - code
        name = signal.Signals(-code).name
        if attempt == RESTARTS:
            _say(f"a process was lost ({name}), and so it was {RESTARTS} times before; giving up")
            return 128 - code
        _say(f"a process was lost ({name}); starting all {size} again ({attempt + 1} of {RESTARTS})")
    raise AssertionError("unreachable")


class Group(SignalHandlers):
    """The processes of one attempt; whatever happens, none is left when it is closed."""

    def __init__(self, words: Sequence[str], size: int):
        super().__init__((*SIGNALS, *QUESTION))
        self.words, self.size = list(words), size
        self.asked = False
        self.processes: list[subprocess.Popen[bytes]] = []
        self.errors: list[IO[bytes]] = []

    def __enter__(self) -> "Group":
        super().__enter__()
        port = free_port()
        for rank in range(self.size):
            self.errors.append(tempfile.TemporaryFile())
            first = rank == 0
            self.processes.append(
                subprocess.Popen(
                    python_command("-m", "clozeworks", *self.words),
                    env=child_environment(environment(rank, self.size, port)),
                    stdin=subprocess.DEVNULL,
                    stdout=None if first else subprocess.DEVNULL,
                    stderr=None if first else self.errors[rank],
                    start_new_session=True,  # Ctrl-C comes to us alone, and from us once
                    preexec_fn=end_with_launcher if sys.platform == "linux" else None,
                )
            )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for file in self.errors:
            file.close()
        super().__exit__()

    def wait(self) -> int:
        """The exit code of the group: 0 or more as a process gave it, below 0 the signal that one was lost by."""
        while all(process.poll() is None or process.returncode == 0 for process in self.processes):
            if all(process.poll() == 0 for process in self.processes):
                return 0
            time.sleep(0.02)
        for _ in self._a_while():
            if all(process.poll() is not None for process in self.processes):
                break
        code, rank = verdict([process.poll() for process in self.processes])
        if rank and code not in KILLED:
            self._repeat(rank)
        return code

    def _a_while(self) -> Iterator[None]:
        """Until the others have ended too: as long as a save takes where they were asked to, else a few seconds."""
        begin = time.monotonic()
        while self.asked or time.monotonic() - begin < GRACE:
            yield
            time.sleep(0.02)

    def _repeat(self, rank: int) -> None:
        """What a process other than the first said, which nobody saw."""
        self.errors[rank].seek(0)
        sys.stderr.flush()
        with contextlib.suppress(AttributeError):
            sys.stderr.buffer.write(self.errors[rank].read())
            sys.stderr.buffer.flush()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Pass the signal on: a request to stop to all, the question where it is to the first."""
        self.asked = self.asked or number in SIGNALS
        for process in self.processes if number in SIGNALS else self.processes[:1]:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)


def verdict(codes: Sequence[int | None]) -> tuple[int, int]:
    """The exit code that counts, and whose it is; None is a process that still runs."""
    # The first leaves after the last thing that all do together: how another process ends then changes nothing.
    if codes[0] in LEFT:
        return codes[0], 0
    # A process that lost the others only reports it; what ended the others counts, a signal before all.
    causes = [(code > 0, rank) for rank, code in enumerate(codes) if code not in (None, 0, LOST)]
    if not causes:
        return LOST, 0
    rank = min(causes)[1]
    return codes[rank] or 0, rank


def end_with_launcher() -> None:
    """Have the kernel ask this process to stop, save and leave when whoever started it is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """Ours, with what a process of several has to know; the threads are divided among them."""
    threads = str(max(1, int(os.environ.get("OMP_NUM_THREADS", "1").split(",")[0]) // size))
    return {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
