"""Signals: Ctrl-C and SIGTERM as a request to finish the step, save and leave; SIGUSR1 as the question where it is."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
QUESTION: int | None = getattr(signal, "SIGUSR1", None)  # Windows has none


class StopSignal:
    """`asked` becomes the signal's number. Asked a second time, the process stops at once, as it would without us."""

    def __init__(self) -> None:
        self.asked = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._before)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if self.asked:
            _restore(self._before)
            os.kill(os.getpid(), number)
        self.asked = number


class StatusSignal:
    """Calls `answer` whenever SIGUSR1 comes, between two instructions of whatever goes on, and lets that go on."""

    def __init__(self, answer: Callable[[], None]):
        self._answer = answer
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StatusSignal":
        if QUESTION is not None and threading.current_thread() is threading.main_thread():
            self._before = {QUESTION: signal.signal(QUESTION, lambda _number, _frame: self._answer())}
            signal.siginterrupt(QUESTION, False)  # a system call of a library that is no Python goes on, too
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._before)


def _restore(before: dict[int, object]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)  # pyright: ignore[reportArgumentType]
    before.clear()
