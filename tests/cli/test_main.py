"""The command line as its users meet it: quick help, suggestions, JSON, exit codes, and which command comes next."""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from clozeworks.cli.main import COMMANDS, main, parser_of
from clozeworks.screen.console import emit
from tests.command_line import child, refused

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- help


@pytest.mark.parametrize("words", [["--help"], ["finetune", "--help"]], ids=" ".join)
def test_help_is_quick_and_imports_nothing_heavy(words):
    code = (
        "import contextlib, sys, clozeworks.cli.main as c\n"
        f"with contextlib.suppress(SystemExit): c.main({words!r})\n"
        "print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    )
    heavy = ["torch", "numpy", "tokenizers", "rich", "matplotlib", "safetensors"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    begin = os.times()
    assert child("--help").returncode == 0
    end = os.times()
    assert end.children_user + end.children_system - begin.children_user - begin.children_system < 0.5


def test_overview_tells_every_command(capsys):
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", output, re.MULTILINE), name
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert ended.value.code == 0
    output = capsys.readouterr().out
    assert re.search(rf"^  clozeworks {name}\b", output, re.MULTILINE), "no example"
    assert max(len(line) for line in output.splitlines() if not line.startswith("  clozeworks ")) <= 80
    for action in parser_of(name)._actions:
        assert action.help, f"{action.dest} has no help"


def test_options_are_the_frozen_ones():
    """Scripts depend on these. Adding is fine: write it to options.txt and the changelog. Removing breaks someone."""
    now = ""
    for name in COMMANDS:
        names = [" ".join(a.option_strings[:1]) or str(a.metavar) for a in parser_of(name)._actions]
        now += f"{name}: {' '.join(sorted(names))}\n"
    assert now == (Path(__file__).parent / "options.txt").read_text()


# ---- mistakes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrian"], "did you mean pretrain"),
        (["--hepl"], "there is no such option"),
        (["show", "bert_bse"], "did you mean bert_base"),
        (["show", "bert_tiny", "--set", "encoder.wdth=64"], "did you mean width"),
        (["show", "bert_tiny", "--set", "encoder.width=wide"], "a value of type int is needed"),
        (["show", "bert_tiny", "--set", "encoder.width"], "PATH=VALUE is needed"),
        (["show", "bert_tiny", "--set", "=3"], "--set: =3; PATH=VALUE is needed; for example: --set train.steps=500"),
        (["show", "bert_tiny", "--set", "a.b"], "--set: a.b; PATH=VALUE is needed"),
        (["show", "bert_tiny", "--set", ""], "--set: nothing; PATH=VALUE is needed"),
        (["show", "bert_tiny", "--set", "encoder.width="], "encoder.width = nothing: a value of type int"),
        (["show", "bert_tiny", "--set", "encoder.stack.depth=1e9"], "at most 10,000 is needed"),
        (["show", "bert_tiny", "--set", "objective.corruption=MaskTokkens"], "did you mean MaskTokens or"),
        (["show", "bert_tiny", "--set", "encoder.width=99"], "not divisible"),
        (["show", "bert_tiny", "--jsno"], "did you mean --json"),
        (["show"], "no RECIPE"),
        (["show", "a", "b"], "one argument too many"),
        (["show", "nowhere/recipe.json"], "nowhere does not exist either"),
        (["prepare", "corpus.txt", "--otu", "x"], "did you mean --out"),
        (["prepare", "corpus.txt"], "no --out"),
        (["prepare", "--out", "x"], "no text"),
        (["prepare", "x.txt", "--out", "x", "--lang", "fr"], "en, zh"),
        (["prepare", "x.txt", "--out", "x", "--lang"], "nothing after it"),
        (["prepare", "x.txt", "--out", "x", "--vocab", "many"], "a whole number"),
        (["prepare", "x.txt", "--out", "x", "--heldout", "2"], "a share"),
        (["prepare", "x.txt", "--out", "x", "--errors", "replac"], "did you mean replace"),
        (["pretrain", "bert_tiny", "--dat", "x"], "did you mean --data"),
        (["pretrain", "bert_tiny", "--data", "nowhere", "--device", "cuad"], "--device"),
        (["evaluate", "nowhere", "--data", "x"], "no such path"),
        (["evaluate", "bert-base-uncased", "--data", "x"], "nothing is downloaded here"),
        (
            ["evaluate", "google/bert_uncased_L-2_H-128_A-2", "--data", "x"],
            "hf download google/bert_uncased_L-2_H-128_A-2",
        ),
        (["finetune", "ner", "--model", "x", "--train", "y"], "did you mean tag?"),
        (["finetune", "squad", "--model", "x", "--train", "y"], "did you mean qa?"),
        (["finetune", "towers", "--model", "x", "--train", "y"], "did you mean embed?"),
        (["finetune", "nli", "--model", "x", "--train", "y"], "did you mean pair?"),
        (["finetune", "summarize", "--model", "x", "--train", "y"], "did you mean seq2seq?"),
        (["finetune", "classify", "--lr", "1e-4"], "did you mean --learning-rate?"),
        (["finetune", "classify", "--batch", "8"], "did you mean --batch-size?"),
        (["pretrain", "bert_tiny", "--batch-size", "8"], "did you mean --batch-tokens?"),
        (["pretrain", "bert_tiny", "--learning-rate", "fast"], "a number above 0 is needed"),
        (["vectors", "gloev", "x.txt"], "did you mean glove?"),
        (["vectors", "skipgram", "x.txt", "--x-max", "3"], "there is no such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence_with_a_way_out(words, message, capsys):
    assert message in refused(capsys, *words)


def test_misspelt_paths_get_the_near_name(road, capsys, monkeypatch):
    assert f"did you mean {road}/corpus.txt?" in refused(capsys, "prepare", f"{road}/corpse.txt", "--out", road / "x")
    assert f"did you mean {road}/data?" in refused(capsys, "examples", "bert_tiny", "--data", f"{road}/dta")
    monkeypatch.chdir(road)  # names of the hub are like these, and what is near comes first
    assert "did you mean run?" in refused(capsys, "evaluate", "rnu", "--data", "data")
    assert "did you mean data/tokenizer.json?" in refused(capsys, "evaluate", "data/tokeniser.json", "--data", "data")
    assert f"did you mean {road}/run?" in refused(capsys, "fill-mask", f"{road}/rnu", "a [MASK]")
    assert f"did you mean {road}/data?" in refused(capsys, "pretrain", "bert_tiny", "--data", f"{road}/dat:2")
    assert "a number is needed after the colon" in refused(capsys, "pretrain", "bert_tiny", "--data", f"{road}/data:x")


STUBBORN = """
import contextlib, signal, time
import clozeworks.cli.main as c

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it

def run():
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        while True:  # clean-up that an exception does not end, such as that of a library
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(600)

c.read_command = lambda words: run
c.leave()
"""


def test_ctrl_c_again_ends_clean_up_that_would_wait_for_ever():
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        for _ in range(600):  # a minute, where the machine is busy
            running.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(0.1)
                break
        else:
            running.kill()
            pytest.fail("it does not end")
    assert running.returncode == -signal.SIGINT


def test_a_bug_of_ours_is_a_traceback():
    code = "import clozeworks.cli.main as c, clozeworks.machine.doctor as d; d.apply = None; c.main(['recipes'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_pipes_get_no_escape_codes_and_colour_can_be_refused(capsys, monkeypatch):
    """What is captured is no terminal, as a pipe is none."""

    def printed() -> str:
        assert main(["diff", "bert_base", "roberta_base"]) == 0
        return capsys.readouterr().out

    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b" not in printed()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in printed()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed()


@pytest.mark.parametrize(
    ("given", "then"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
    ids=str,
)
def test_waiting_threads_do_not_spin_unless_asked_to(given, then, capsys, monkeypatch):
    """Before a command is loaded: the threads of torch begin with what they are told at its import."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is put back in the end, whatever the command does
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    seen = []
    command = SimpleNamespace(run=lambda options: seen.append(os.environ.get("GOMP_SPINCOUNT")))
    options = parser_of("recipes")
    monkeypatch.setattr("clozeworks.cli.main.parser_of", lambda name: options)
    monkeypatch.setattr("clozeworks.cli.main.load_command", lambda name: command)
    assert main(["recipes"]) == 0
    assert seen == [then]


def test_a_number_that_json_cannot_say_is_null(capsys: pytest.CaptureFixture[str]):
    emit({"loss": math.nan, "rows": [(1, math.inf)], "name": "a"})
    assert json.loads(capsys.readouterr().out) == {"loss": None, "rows": [[1, None]], "name": "a"}
