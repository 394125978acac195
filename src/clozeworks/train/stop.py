"""Signals: Ctrl-C and SIGTERM as a request to finish the step, save and leave; SIGUSR1 as the question where it is."""

import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
QUESTION = tuple(filter(None, [getattr(signal, "SIGUSR1", None)]))  # Windows has none


class SignalHandlers:
    """Has `_handle` called for some signals while the block lasts, and restores the handlers of before."""

    def __init__(self, numbers: Iterable[int]):
        self._numbers = tuple(numbers)
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            self._before = {number: signal.signal(number, self._handle) for number in self._numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        raise NotImplementedError


class StopSignal(SignalHandlers):
    """`asked` becomes the signal's number. Asked a second time, the process stops at once, as it would without us."""

    def __init__(self) -> None:
        super().__init__(SIGNALS)
        self.asked = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self.__exit__()
            os.kill(os.getpid(), number)
        self.asked = number


class StatusSignal(SignalHandlers):
    """Calls `answer` whenever SIGUSR1 comes, between two instructions of whatever runs, and lets that continue."""

    def __init__(self, answer: Callable[[], None]):
        super().__init__(QUESTION)
        self._answer = answer

    def __enter__(self) -> Self:
        super().__enter__()
        for number in self._before:
            signal.siginterrupt(number, False)  # a system call of a library that is no Python continues, too
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._answer()
