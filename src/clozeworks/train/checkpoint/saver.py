"""Saving beside the training: the tensors are copied at the step, and written while the next steps are computed."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clozeworks.exchange import checkpoint

Tensors = Mapping[str, Mapping[str, Tensor]]


class Saver(contextlib.AbstractContextManager["Saver"]):
    """Writes the checkpoints of a run, one at a time: the next one waits for the one in flight.

    A save that failed raises at the next `check`, `save` or `wait`; what was there before it is there still. Leaving
    the block waits, unless it is left by Ctrl-C. The copies take as much main memory as a checkpoint, once.
    """

    def __init__(self, run: Path, durable: int = 0):
        self.run, self.durable = run, durable  # step of the last checkpoint that is whole and on the disk
        self._copies: dict[tuple[str, str], Tensor] = {}
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.wait()
        elif not issubclass(kind, KeyboardInterrupt):  # asked twice, a run stops at once
            self._join()

    def save(
        self,
        step: int,
        tensors: Tensors,
        state: Mapping[str, Any],
        files: Mapping[str, bytes] | None = None,
        *,
        before: Callable[[], None] = lambda: None,
        keep: Callable[[list[int]], set[int]] = set,
    ) -> None:
        """Begin to save a step. `before` is called first, then the checkpoint is written, and of all there are up to
        this one only those stay that `keep` gives."""
        self.wait()
        copies = {file: self._copied(file, content) for file, content in tensors.items()}

        def write() -> None:
            try:
                before()
                checkpoint.save(self.run, step, copies, state, files)
                self.durable = step
                checkpoint.prune(self.run, step, keep)
            except BaseException as error:  # a thread has nobody to report to: the caller raises it
                self._error = error

        self._thread = threading.Thread(target=write, name="clozeworks-saver", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what went wrong, if anything did; never waits."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Until nothing is in flight."""
        self._join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    @torch.no_grad()
    def _copied(self, file: str, content: Mapping[str, Tensor]) -> dict[str, Tensor]:
        copies: dict[str, Tensor] = {}
        for name, tensor in content.items():
            copy = self._copies.get((file, name))
            if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
                copy = self._copies[file, name] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            copies[name] = copy.copy_(tensor)
        return copies
