"""metrics.jsonl and the progress line."""

import dataclasses
import io
import json
import math
import resource
from pathlib import Path

import pytest
import torch
from rich.console import Console

from clozeworks.core.batch import from_padded
from clozeworks.core.errors import InputError
from clozeworks.train import metrics_log
from clozeworks.train.screen.progress import ProgressLine, clock
from clozeworks.train.step import Step


def step(number: int, steps: int = 10, **more: object) -> Step:
    plain = Step(number=number, steps=steps, loss=2.5, metrics={"masked_lm": 2.5, "masked_accuracy": 0.25},
                 learning_rate=1e-3, grad_norm=1.0, tokens=100, examples=(3, 4), seconds=0.5, cpu_seconds=0.25,
                 waited=0.05, batch=from_padded(torch.arange(6)[None]))  # fmt: skip
    return dataclasses.replace(plain, **more)  # pyright: ignore[reportArgumentType]


def written(path: Path) -> list[int]:
    return [row["step"] for row in metrics_log.read(path)]


def test_rows_of_later_steps_and_a_torn_line_are_cut_off(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    metrics = metrics_log.Metrics(path)
    for number in (1, 2, 4, 6):
        metrics.write({"step": number})
    metrics.write({"step": 4, "split": "heldout"})
    metrics.close()
    with path.open("a") as file:
        file.write('{"step": 8, "lo')
    assert written(path) == [1, 2, 4, 6, 4]
    again = metrics_log.Metrics(path, 5)
    assert written(path) == [1, 2, 4, 4]
    again.write({"step": 6})
    again.close()
    assert path.read_text().count("\n") == 5
    assert written(path) == [1, 2, 4, 4, 6]


def test_the_tail_of_a_long_file_skips_what_is_damaged(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": number, "loss": 1.0}) for number in range(1, 1001)]
    lines[989:992] = ["\x00" * 20, "[" * 100_000, '"a string"']
    path.write_text("\n".join([*lines, '{"step": 1001, "lo']))
    rows, damaged = metrics_log.tail(path)
    assert ([row["step"] for row in rows], damaged) == ([*range(1, 990), *range(993, 1001)], 3)
    rows, damaged = metrics_log.tail(path, size=200)
    assert ([row["step"] for row in rows], damaged) == ([995, 996, 997, 998, 999, 1000], 0), (
        "the first line may be a part"
    )
    path.write_text("")
    assert metrics_log.tail(path) == ([], 0)


def test_each_row_is_there_at_once(tmp_path: Path):
    metrics = metrics_log.Metrics(tmp_path / "metrics.jsonl")
    metrics.write({"step": 1})
    assert written(tmp_path / "metrics.jsonl") == [1]
    metrics.close()


def test_a_full_disk_is_a_sentence_and_leaves_what_was_written(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    metrics = metrics_log.Metrics(path)
    metrics.write({"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(InputError, match=r"metrics.jsonl: the file is too large"):
            metrics.write({"step": 2, "loss": 1.5})
        metrics.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.stat().st_size == 20, "a torn line"
    assert written(path) == [1]


def test_a_row_has_every_field():
    pace = metrics_log.Pace()
    pace.add(step(1))
    pace.add(step(2))
    row = metrics_log.make_row(step(2), 200, pace.take())
    assert row["tokens_per_second"] == 200
    assert row["tokens_per_cpu_second"] == 400
    assert row["data_wait_share"] == 0.1
    assert row["peak_memory_mb"] > 10
    expected = {"step": 2, "loss": 2.5, "learning_rate": 1e-3, "tokens": 200, "masked_lm": 2.5, "masked_accuracy": 0.25}
    assert row | expected == row
    assert "skipped" not in row
    pace.add(step(3))
    assert pace.take()["tokens_per_second"] == 200, "the pace is that since the last row"


def test_a_skipped_step_names_its_examples_in_valid_json(tmp_path: Path):
    metrics = metrics_log.Metrics(tmp_path / "m.jsonl")
    metrics.write(metrics_log.make_row(step(1, loss=math.nan, grad_norm=math.inf, skipped=True), 100, {}))
    metrics.close()
    row = json.loads((tmp_path / "m.jsonl").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert (row["loss"], row["grad_norm"], row["skipped"], row["examples"]) == (None, None, True, [3, 4])


def test_without_a_terminal_the_line_is_plain_and_rare():
    out = io.StringIO()
    line = ProgressLine(1000, console=Console(file=out, width=40))
    for number in range(1, 1001):
        line.update(step(number, 1000))
    line.close()
    lines = out.getvalue().splitlines()
    assert len(lines) == 2, "the first and the last; nothing took fifteen seconds"
    assert lines[0].startswith("step 1 of 1,000  loss 2.500  accuracy 25.0%  200 tokens/s")
    assert lines[1].startswith("step 1,000 of 1,000")
    assert "\x1b" not in out.getvalue()


def test_silence_when_asked():
    out = io.StringIO()
    line = ProgressLine(2, console=Console(file=out), show=False)
    line.update(step(1, 2))
    line.say("nothing")
    line.close()
    assert out.getvalue() == ""


def test_clock():
    assert [clock(s) for s in (0, 59.6, 61, 3661)] == ["0:00", "1:00", "1:01", "1:01:01"]
