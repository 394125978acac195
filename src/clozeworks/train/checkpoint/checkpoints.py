"""The checkpoints of a run: where it resumes, what is saved, and where a spike that lasts sends it back to."""

import functools
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.exchange import checkpoint
from clozeworks.optim.keep import Score
from clozeworks.train import run_dir
from clozeworks.train.checkpoint import distributed_checkpoint
from clozeworks.train.checkpoint.saver import Saver
from clozeworks.train.protocols import Batches
from clozeworks.train.startup.setup import Setup
from clozeworks.train.step import Step

State = dict[str, Any]  # of a run after a step: what its checkpoint holds beside tensors
BEGINNING: State = {"step": 0, "tokens": 0, "seconds": 0.0, "position": None, "guard": {}}


class Checkpoints:
    """Saves and restores the model, the optimizer, the position in the data and the memory of the guard.

    Replicas are alike, so the main process saves, beside the training; shards stop until all have written. A restored
    run continues bit by bit as the uninterrupted one.
    """

    def __init__(self, run: Path, setup: Setup, batches: Batches):
        self.run, self.setup, self.batches = run, setup, batches
        self.saver = Saver(run)
        self.due = False  # a step was to be saved, and was not yet

    def restore(self, record: dict[str, Any]) -> State:
        """Take up the newest checkpoint that verifies, or the beginning; `record` is the content of run.json."""
        setup, run = self.setup, self.run
        recipe, room = setup.recipe, distributed_checkpoint.memory_bytes(setup.recipe)
        newest = distributed_checkpoint.find(setup.policy.group, run)
        if record["source"] and not setup.start.given and newest.checkpoint is None:
            needed, todo = "it was begun from a model or vectors", "give the same --from or --word-vectors again"
            raise InputError(run, "no checkpoint yet", needed, todo)
        setup.notes += [f"damaged checkpoint passed over: {reason}" for reason in newest.damaged]
        if newest.checkpoint is None:
            if newest.damaged:
                raise InputError(run, "; ".join(newest.damaged), "a sound checkpoint is needed to resume",
                                 "restore one from a copy, or move the directory away to begin again")  # fmt: skip
            checkpoint.expect_room(run, setup.model, room)
            return self._enter(BEGINNING)
        state = newest.checkpoint.state
        if state["recipe"] != run_dir.fingerprint(recipe):
            raise InputError(newest.checkpoint.path, "a checkpoint of another recipe", "it must be of this run",
                             "move it away")  # fmt: skip
        self._load(newest.checkpoint)
        if state["step"] < recipe.train.steps:
            checkpoint.expect_room(run, setup.model, room)
            setup.notes.append(f"resuming from step {state['step']:,}")
        else:
            again = "--from" if recipe.task is None else "--model"
            setup.notes.append(
                f"{run} was finished already, all {state['step']:,} steps of it; "
                f"to train it further, begin another run: {again} {shlex.quote(str(run))} --out NEW"
            )
        return self._enter(state)

    def check(self) -> int:
        """The step of the last checkpoint on the disk; a save that failed raises."""
        self.saver.check()
        return self.saver.durable

    def is_due(self, step: Step) -> bool:
        """Whether it is time to save: every `train.save_every` steps, but not in the middle of trouble."""
        self.due = self.due or step.every(self.setup.recipe.train.save_every)
        return self.due and not self.setup.policy.guard.level

    def save(
        self, step: Step, *, tokens: int, seconds: float, scores: dict[int, Score], sync: Callable[[], None]
    ) -> None:
        """Save a step. `sync` puts the rows of metrics.jsonl on the disk: the checkpoint promises those up to it."""
        setup, group = self.setup, self.setup.policy.group
        self.due = False
        state = {
            "tokens": tokens,
            "seconds": round(seconds, 3),
            "position": self.batches.position,
            "guard": setup.policy.guard.state(),
            "recipe": run_dir.fingerprint(setup.recipe),
            "versions": run_dir.versions(),
        }
        anchor = setup.policy.guard.anchor(step.number)
        keep = functools.partial(setup.recipe.train.keep.choose, scores=dict(scores), anchor=anchor)
        tensors = distributed_checkpoint.gather_tensors(setup.model, setup.optimizer)
        files = run_dir.model_files(self.run) | distributed_checkpoint.memory_files(group, setup.policy.memory)
        if group.sharded:
            sync()
            distributed_checkpoint.save(group, self.run, step.number, tensors, state, files)
            self.saver.durable = step.number
            if group.main:
                checkpoint.prune(self.run, step.number, keep)
        elif group.main:
            self.saver.save(step.number, tensors, state, files, before=sync, keep=keep)

    def roll_back(self, step: Step) -> State:
        """Restore the newest checkpoint from before the trouble at `step`, or the beginning; raise where that is vain.

        What comes after is deleted: it belongs to a course that is left.
        """
        setup, guard, group = self.setup, self.setup.policy.guard, self.setup.policy.group
        self.saver.wait()
        if guard.hopeless:
            if guard.passed and group.main:  # so that the newest checkpoint is a sound one
                checkpoint.drop_after(self.run, guard.passed[-1].begin - 1)
            raise guard.diverged(step)
        passed = [asdict(each) for each in guard.passed]
        sound = distributed_checkpoint.find(group, self.run, upto=passed[-1]["begin"] - 1).checkpoint
        if sound is None and not setup.start.given and run_dir.read(self.run)["source"]:
            given = f"trouble at step {passed[-1]['first']:,}, before any checkpoint"
            needed, todo = "it goes back to what it was begun from", "give the same --from or --word-vectors again"
            raise InputError(self.run, given, needed, todo)
        state = sound.state if sound else BEGINNING
        if group.main:
            checkpoint.drop_after(self.run, state["step"])
        if sound:
            self._load(sound)
        else:
            setup.policy.memory.forget()
            distributed_checkpoint.begin(group, setup.begin(), setup.model, setup.optimizer)
        return self._enter({**state, "guard": {**state.get("guard", {}), "passed": passed}})

    def _load(self, one: checkpoint.Checkpoint) -> None:
        setup = self.setup
        distributed_checkpoint.restore(setup.policy.group, one, setup.model, setup.optimizer, setup.policy.memory)

    def _enter(self, state: State) -> State:
        """The data and the guard as they were at a state, whose tensors are restored already."""
        self.batches.start = state["step"]
        self.batches.position = state["position"] or {"phase": 0, "place": None}
        self.setup.policy.guard.load(state.get("guard", {}))
        self.saver.durable = state["step"]
        return dict(state)
