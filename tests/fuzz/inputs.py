"""Inputs that somebody broke: files of every kind, mutated by a seeded generator, and senseless numbers.

Whatever a file holds, a command ends with 0, or with 2 and one sentence; it neither hangs nor fills the memory, and
what it refuses leaves nothing behind.
"""

import argparse
import atexit
import contextlib
import functools
import io
import json
import os
import random
import resource
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import pandas
from safetensors.torch import load_file, save_file

from clozeworks.cli.main import COMMANDS, main, parser_of
from clozeworks.core import spec
from clozeworks.recipes import recipe
from tests.command_line import SMALL, override, text
from tests.exchange.test_elmo import OPTIONS, arrays
from tests.fuzz import mutations as break_
from tests.labelled import QUICK, rows, write

NAME = "inputs"
SECONDS = 60  # of the processor, which a busy machine does not change
MEMORY = 6 << 30  # bytes of addresses above what the process has
LINES = "the red fox\na blue hen\n"
TAGGED = "the O\nred B-X\nfox I-X\n\na O\nhen B-X\n\n" * 4
NUMBERS = ("nan", "inf", "-inf", "1e400", str(1 << 64), "-7", "", "seven", "0x10", "9" * 5000)

Words = list[str]
Case = tuple[Words, str]  # a command line, and what was done to its files
Mutate = Callable[[random.Random, bytes], tuple[bytes, str]]


class HangError(BaseException):
    """A case took more time than any should; what handles errors must not catch it."""


def run_case(seed: int) -> str | None:
    """Break one input and run a command on it: None if that held, or what went wrong."""
    draw = random.Random(seed)
    kind = draw.choice(list(KINDS))
    with tempfile.TemporaryDirectory(prefix="clozeworks-fuzz-") as name:
        words, what = KINDS[kind](draw, Path(name))
        before = set(Path(name).rglob("*"))
        code, wrong = judge(words)
        left = set(Path(name).rglob("*")) - before
        if wrong is None and code == 2 and left:
            wrong = f"refused, but left {min(left).relative_to(name)}"
        if wrong is None and code == 0 and kind == "options":
            wrong = "a senseless number was taken"
    return None if wrong is None else f"{kind}, {what}: clozeworks {' '.join(words)[:300]}: {wrong}"


def judge(words: Words) -> tuple[int, str | None]:
    """The exit code of a command, and what is wrong with how it ended."""
    output = io.StringIO()
    try:
        with limited(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(output):
            code = main(words)
    except HangError:
        return 1, f"it runs for more than {SECONDS} seconds of the processor"
    except BaseException:
        return 1, traceback.format_exc()[-1500:]
    printed = output.getvalue()
    if code not in (0, 2):
        return code, f"exit code {code}"
    if code == 2 and "--check" in words and not printed:  # its findings are what it prints
        return code, None
    if code == 2 and (printed.count("\n") != 1 or not printed.startswith("error: ")):
        return code, f"not one sentence: {printed[-500:]!r}"
    if printed.startswith("error: memory:"):
        return code, "it took all memory"
    return code, None


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Bound the time of the processor and the memory of a block."""

    def stop(number: int, frame: object) -> None:
        raise HangError

    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)


@functools.cache
def scene() -> Path:
    """Sound files, made once: text, data, a run, a task, its Hugging Face directory, vectors, tables."""
    folder = Path(tempfile.mkdtemp(prefix="clozeworks-scene-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "corpus.txt").write_text(text(40, 1))
    (folder / "lines.txt").write_text(LINES)
    (folder / "rows.conll").write_text(TAGGED)
    labelled = write(folder / "rows.jsonl", rows(24))
    frame = pandas.DataFrame(rows(24))
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_csv(folder / "rows.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "rows.parquet")
    (folder / "rows.json").write_text(json.dumps(rows(24)))
    tiny = [*SMALL, "--set", "encoder.stack.depth=1", "--set", "train.steps=2"]
    data, run, task, hf = (folder / name for name in ("data", "run", "task", "hf"))
    for words in (
        ["prepare", folder / "corpus.txt", "--out", data, "--vocab", "90", "--heldout", "0.1"],
        ["pretrain", "bert_tiny", "--data", data, "--out", run, *tiny],
        ["finetune", "classify", "--model", run, "--train", labelled, "--out", task, *override(QUICK, "--epochs", 1)],
        ["export", run, "--to", "hf", "--out", hf],
        ["export", run, "--to", "sentence-transformers", "--out", folder / "sentences"],
    ):
        with contextlib.redirect_stdout(io.StringIO()):
            assert main([*map(str, words)]) == 0, words
    divide(hf, folder / "divided")
    write_published(folder / "elmo")
    words = "".join(f"w{n} {n / 7:.3f} {-n / 3:.3f} 0.5\n" for n in range(9))
    (folder / "vectors.txt").write_text("9 3\n" + words)
    return folder


def write_published(folder: Path) -> None:
    """An ELMo as its authors write it."""
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(OPTIONS))
    (folder / "vocab.txt").write_text("the\nred\nfox\n")
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, value in arrays().items():
            file[name] = value


def divide(whole: Path, parts: Path) -> None:
    """The same directory with its weights in two files and an index."""
    shutil.copytree(whole, parts)
    weights = load_file(parts / "model.safetensors")
    (parts / "model.safetensors").unlink()
    index: dict[str, str] = {}
    for number, names in enumerate((sorted(weights)[::2], sorted(weights)[1::2]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: weights[name].contiguous() for name in names}, parts / file)
        index |= dict.fromkeys(names, file)
    (parts / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


# Kinds of cases: each makes its files in a folder.


def broken(draw: random.Random, folder: Path, name: str, file: str, mutate: Mutate) -> str:
    """Copy a directory of the scene, with one of its files broken; says how."""
    shutil.copytree(scene() / name, folder / name)
    target = folder / name / file
    content, what = mutate(draw, target.read_bytes())
    target.write_bytes(content)
    return f"{name}/{file} {what}"


def use_model(draw: random.Random, folder: Path, name: str) -> Words:
    """A command that reads a model directory."""
    model, out = str(folder / name), str(folder / "out")
    lines, labelled = str(scene() / "lines.txt"), str(scene() / "rows.jsonl")
    ways = [
        ["encode", model, lines, "--out", f"{out}.npy"],
        ["export", model, "--to", "clozeworks", "--out", out],
        ["fill-mask", model, "the [MASK] fox"],
        ["finetune", "classify", "--model", model, "--train", labelled, "--dry-run"],
    ]
    if name == "task":
        ways += [["predict", model, labelled, "--out", out], ["evaluate", model, "--test", labelled, "--json"]]
    return draw.choice(ways)


def break_json(draw: random.Random, folder: Path) -> Case:
    files = {
        "task": ("recipe.json", "tokenizer_config.json"),
        "hf": ("config.json", "tokenizer_config.json"),
        "divided": ("model.safetensors.index.json", "config.json"),
    }
    return break_one(draw, folder, files, break_.mutate_json)


def break_published(draw: random.Random, folder: Path) -> Case:
    """Files that other libraries write beside a model, or instead of ours."""
    pooling = (
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    )
    if draw.random() < 0.2:
        return break_one(draw, folder, {"elmo": ("weights.hdf5", "vocab.txt")}, break_.mutate_bytes)
    return break_one(draw, folder, {"sentences": pooling, "elmo": ("options.json",)}, break_.mutate_json)


def break_one(draw: random.Random, folder: Path, files: dict[str, tuple[str, ...]], mutate: Mutate) -> Case:
    name = draw.choice(list(files))
    what = broken(draw, folder, name, draw.choice(files[name]), mutate)
    return use_model(draw, folder, name), what


def break_tokenizer(draw: random.Random, folder: Path) -> Case:
    name = draw.choice(("task", "hf"))
    what = broken(draw, folder, name, "tokenizer.json", break_.mutate_json)
    prepare = ["prepare", str(scene() / "lines.txt"), "--tokenizer", str(folder / name), "--out", str(folder / "out")]
    return draw.choice((prepare, use_model(draw, folder, name))), what


def break_weights(draw: random.Random, folder: Path) -> Case:
    name = draw.choice(("task", "hf"))
    what = broken(draw, folder, name, "model.safetensors", break_.mutate_safetensors)
    return use_model(draw, folder, name), what


def break_run(draw: random.Random, folder: Path) -> Case:
    file = draw.choice(("run.json", "recipe.json", "metrics.jsonl"))
    what = broken(draw, folder, "run", file, break_.mutate_records if file.endswith("l") else break_.mutate_json)
    run, data = str(folder / "run"), str(scene() / "data")
    steps = ["--steps", "2", "--batch-tokens", "256"]
    ways = [["runs", str(folder)], ["examples", "--run", run, "--step", "1"], ["evaluate", run, "--data", data]]
    return draw.choice([*ways, ["pretrain", "bert_tiny", "--data", data, "--out", run, *steps]]), what


def break_data(draw: random.Random, folder: Path) -> Case:
    shards = [file.name for file in (scene() / "data").glob("*.safetensors")]
    file = draw.choice(["manifest.json", "tokenizer.json", *shards])
    mutate = break_.mutate_safetensors if file in shards else break_.mutate_json
    what = broken(draw, folder, "data", file, mutate)
    data = str(folder / "data")
    ways = [["examples", "bert_tiny", "--data", data], ["evaluate", str(scene() / "run"), "--data", data]]
    return draw.choice([*ways, ["prepare", str(scene() / "lines.txt"), "--out", data]]), what


def break_table(draw: random.Random, folder: Path) -> Case:
    kind = draw.choice(("jsonl", "jsonl", "json", "csv", "tsv", "parquet", "conll"))
    mutate = {"jsonl": break_.mutate_records, "json": break_.mutate_json, "parquet": break_.mutate_bytes}
    file = folder / f"rows.{kind}"
    content, what = mutate.get(kind, break_.mutate_lines)(draw, (scene() / file.name).read_bytes())
    file.write_bytes(content)
    task, out = str(scene() / "task"), str(folder / "out")
    learns = "tag" if kind == "conll" else "classify"
    ways = [["finetune", learns, "--model", str(scene() / "run"), "--train", str(file), "--dry-run"]]
    ways += [["evaluate", task, "--test", str(file), "--json"], ["predict", task, str(file), "--out", out]]
    return draw.choice(ways), f"{file.name} {what}"


def break_text(draw: random.Random, folder: Path) -> Case:
    kind = draw.choice(("txt", "jsonl", "csv"))
    file = folder / f"text.{kind}"
    sound = (scene() / ("corpus.txt" if kind == "txt" else f"rows.{kind}")).read_bytes()
    content, what = (break_.mutate_records if kind == "jsonl" else break_.mutate_lines)(draw, sound)
    file.write_bytes(content)
    how = ["--encoding", draw.choice(("utf-8", "auto", "utf-16", "gb18030", "latin-1"))]
    how += ["--errors", draw.choice(("strict", "replace", "skip"))]
    kinds = ("wordpiece", "bytes", "bpe", "unigram", "words", "chars")
    made = ["--vocab", "120", "--tokenizer", draw.choice(kinds), "--out", str(folder / "out")]
    phrases = ["vectors", "phrases", str(file), "--out", str(folder / "out.tsv")]
    ways = [["prepare", str(file), *made], ["prepare", str(file), "--check"], phrases]
    return [*draw.choice(ways), *how], f"text.{kind} {what}"


def break_vectors(draw: random.Random, folder: Path) -> Case:
    file = folder / "vectors.txt"
    content, what = break_.mutate_lines(draw, (scene() / "vectors.txt").read_bytes())
    file.write_bytes(content)
    convert = ["vectors", "convert", str(file), str(folder / "out.safetensors")]
    return draw.choice((convert, ["vectors", "similar", str(file), "w1"])), f"vectors.txt {what}"


def senseless_options(draw: random.Random, folder: Path) -> Case:
    """Every numeric option of every command; what else the command needs is never looked at."""
    name = draw.choice(COMMANDS)
    actions = parser_of(name)._actions
    metavars = ("N", "S", "I", "R", "T", "P", "A", "X", "W", "E", "K", "SHARE", "STEPS")
    numeric = [each for each in actions if each.option_strings and each.metavar in metavars]
    if not numeric:
        return ["show", "bert_tiny", "--set", f"train.steps={draw.choice(NUMBERS)}"], "train.steps"
    chosen = draw.choice(numeric)
    value = draw.choice(
        [each for each in NUMBERS if each != "-7" or "whole" in getattr(chosen.type, "__qualname__", "")]
    )
    needed = [str(folder / "nothing") for each in actions if not each.option_strings and each.nargs is None]
    needed += [word for each in actions if each.required and each.option_strings for word in _give(each, folder)]
    return [*name.split(), *needed, f"{chosen.option_strings[0]}={value}"], chosen.option_strings[0]


def _give(action: argparse.Action, folder: Path) -> Words:
    return [action.option_strings[0], str(folder / "nothing")]


@functools.cache
def fields(name: str) -> list[str]:
    """The paths of all fields of a recipe."""

    def below(part: object, path: str) -> Iterator[str]:
        for field, value in spec.children(part) if isinstance(part, spec.Spec) else ():
            yield f"{path}{field}"
            yield from below(value, f"{path}{field}.")

    return list(below(recipe(name), ""))


def senseless_fields(draw: random.Random, folder: Path) -> Case:
    """A value for any field of a recipe."""
    name = draw.choice(("bert_tiny", "albert_mini", "longformer_mini", "xlnet_mini", "elmo_mini", "transformer_mini"))
    value = draw.choice(
        (*NUMBERS, "0", "1", "3", "0.5", "1e9", "2147483647", "null", "true", "[]", "[1,2]", "Attention")
    )
    path = draw.choice(fields(name))
    return ["show", name, "--set", f"{path}={value}", "--json"], f"{path}={value[:20]}"


KINDS: dict[str, Callable[[random.Random, Path], Case]] = {
    "json": break_json,
    "published": break_published,
    "tokenizer": break_tokenizer,
    "weights": break_weights,
    "run": break_run,
    "data": break_data,
    "table": break_table,
    "text": break_text,
    "vectors": break_vectors,
    "options": senseless_options,
    "fields": senseless_fields,
}
