"""What every study is made of: a command, seeds, a budget, training, a mean with its interval, a plot.

A study is a module run as `python -m studies.NAME`: it makes recipes, trains them over seeds, and gives its results as
one object, which `Study` prints as JSON and draws where asked.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from clozeworks.core.batch import Batch
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import InputError
from clozeworks.corpus import english
from clozeworks.model import Model
from clozeworks.plots import charts

QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # Student's 97.5 % by degrees of freedom

Results = dict[str, Any]
Trained = TypeVar("Trained")


# ---- the command


class Arguments(argparse.ArgumentParser):
    """A parser whose mistakes are one sentence."""

    def __init__(self, name: str, about: str, example: str):
        super().__init__(
            f"python -m studies.{name}", description=about, epilog=f"example: {example}", allow_abbrev=False
        )
        self.name, self.example = name, example

    def error(self, message: str) -> NoReturn:
        raise InputError(self.name, message, "arguments as --help tells are needed", f"for example: {self.example}")


@dataclass(frozen=True, slots=True)
class Study:
    """An experiment behind a page of the documentation, as a command.

    `run` takes the seeds, where there are any, and every option by its name.
    """

    name: str
    about: str
    example: str
    run: Callable[..., Results]
    draw: Callable[[Results, str], None]
    seeds: bool = True
    steps: int | None = None  # of each training, where they are counted
    text: bool = False  # a text of one's own may be given
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of its own, as argparse takes them

    def parser(self) -> Arguments:
        parser = Arguments(self.name, self.about, self.example)
        if self.seeds:
            parser.add_argument("--seeds", default="0,1,2", help="whole numbers, with commas (0,1,2)")
        if self.steps is not None:
            parser.add_argument("--steps", default=str(self.steps), help=f"of each training ({self.steps})")
        parser.add_argument("--plot", metavar="FILE", help="draw it, too: .svg, .png or .pdf")
        if self.text:
            parser.add_argument("--text", metavar="FILE", help="the text to learn (the embedded one)")
        for option, how in self.options.items():
            parser.add_argument(option, **how)
        return parser

    def main(self, words: Sequence[str] | None = None) -> int:
        """Run it with all that was given, draw it where asked, print one JSON object; 0 done, 2 bad input."""
        try:
            options = vars(self.parser().parse_args(words))
            plot = options.pop("plot")
            if plot:
                charts.check_ending(plot)
            if "steps" in options:
                options["steps"] = read_numbers("--steps", options["steps"], 1)[0]
            if "seeds" in options:
                options["seeds"] = read_numbers("--seeds", options["seeds"])
            results = self.run(**options)
            if plot:
                self.draw(results, plot)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        print(json.dumps(results))
        return 0


def read_numbers(option: str, text: str, least: int = 0) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= least for word in words):
        raise InputError(option, text or "nothing", f"whole numbers from {least} on are needed", "such as 0,1,2")
    return [int(word) for word in words]


# ---- text


@contextmanager
def workspace(name: str) -> Iterator[Path]:
    """A directory for the runs of a study."""
    with tempfile.TemporaryDirectory(prefix=f"clozeworks-{name}-") as folder:
        yield Path(folder)


def check_text(text: str | None) -> None:
    if text is not None and not Path(text).is_file():
        raise InputError("--text", text, "a text file is needed", "leave it out for the embedded text")


def prepare_characters(text: str | None, data: Path) -> None:
    """Prepare a text file, or the embedded English text, character by character, a twentieth of it held out."""
    import clozeworks  # what a user calls, and nothing behind it

    check_text(text)
    clozeworks.prepare(text or english.documents(), data, tokenizer="chars", lang="en", heldout=0.05)


def read_fields(pairs: str) -> tuple[str, str]:
    """The names of source and target."""
    names = [name.strip() for name in pairs.split(",")]
    if len(names) != 2 or not all(names):
        raise InputError("--pairs", pairs, "the names of two fields are needed", "such as en,de")
    return names[0], names[1]


def read_pairs(path: str, names: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Sources and targets of a file of JSON lines."""
    if not Path(path).is_file():
        raise InputError("--test", path or "nothing", "a file of JSON lines is needed", "check the path")
    records = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    for number, record in enumerate(records, 1):
        if not all(isinstance(record.get(name), str) for name in names):
            needed = f"an object with the texts {names[0]} and {names[1]} is needed on each line"
            raise InputError(f"{path}:{number}", str(record)[:60], needed, "name the fields with --pairs")
    return [record[names[0]] for record in records], [record[names[1]] for record in records]


# ---- training


def set_budget(recipe: Any, *, seed: int, steps: int, batch_tokens: int, learning_rate: float | None = None) -> None:
    """Train so many steps of so many tokens in fp32, saving and evaluating once, at the end."""
    train = recipe.train
    train.steps = train.save_every = train.evaluate_every = steps
    train.seed, train.batch_tokens, train.precision = seed, batch_tokens, "fp32"
    if learning_rate is not None:
        train.learning_rate = learning_rate


def pretrain(recipe: Any, data: Path, out: Path, **options: Any) -> Any:
    """The model of a silent run. One that is asked to stop ends the study, for half a run has other results."""
    from rich.console import Console

    import clozeworks

    done = clozeworks.pretrain(recipe, data, out, progress=False, console=Console(quiet=True), **options)
    if not done.finished:
        raise SystemExit(128 + done.signal)
    return clozeworks.load(out)


def finetune(task: str, model: Any, train: Any, dev: Any, **options: Any) -> Any:
    """The result of a silent fine-tuning; one that is asked to stop ends the study."""
    import clozeworks

    done = clozeworks.finetune(task, model, train, dev, progress=False, **options)
    if not done.finished:
        raise SystemExit(128 + done.signal)
    return done


def fit_batches(
    model: Model, batch_at: Callable[[int], Batch], *, seed: int, steps: int, learning_rate: float
) -> Model:
    """Train on drawn batches with Adam: a warmup of a twentieth, a linear fall in the second half, clipping."""
    optimizer = torch.optim.Adam(model.parameters(), learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, 20 * (step + 1) / steps, 2 - 2 * step / steps)
    )
    for step in range(steps):
        batch = batch_at(step)
        assert batch.labels is not None
        (loss,) = model(batch, DropoutKey.make(seed, step, rows=range(len(batch.tokens)))).losses.values()
        optimizer.zero_grad()
        (loss / len(batch.labels)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model


def search_rate(
    train: Callable[[int, float], Trained],
    loss_of: Callable[[Trained], float],
    seeds: Sequence[int],
    rates: Sequence[float],
) -> tuple[list[Trained], dict[str, float]]:
    """What `train` gives for every seed at the rate whose loss is lowest with the first, and the loss of each rate."""
    first = {rate: train(seeds[0], rate) for rate in rates}
    best = min(rates, key=lambda rate: loss_of(first[rate]))
    rest = [train(seed, best) for seed in seeds[1:]]
    return [first[best], *rest], {str(rate): round(loss_of(each), 4) for rate, each in first.items()}


# ---- results


def mean_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean over seeds and half of its 95 % interval by Student's t; None for one seed."""
    if len(values) == 1:
        return round(values[0], 4), None
    free = min(len(values) - 1, len(QUANTILES))
    half = QUANTILES[free - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return round(statistics.mean(values), 4), round(half, 4)


def mean_difference(values: Sequence[float], base: Sequence[float]) -> tuple[float, float | None]:
    """The same of differences, seed by seed."""
    return mean_interval([a - b for a, b in zip(values, base, strict=True)])
