"""What may meet a command from outside: closed and full streams, devices, pipes, senseless numbers."""

import io
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clozeworks.cli import main as command_line
from clozeworks.cli.main import main
from clozeworks.screen.console import WIDTH, SafeConsole, json_line, screen
from tests.command_line import refused
from tests.labelled import rows, write

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- streams


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line of shell in which `cw` is the command."""
    begin = f'cw() {{ "{sys.executable}" -m clozeworks "$@"; }}\n'
    return subprocess.run(["bash", "-c", begin + line], capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("cw --help >/dev/full", 2, "error: standard output: No space left on device; "),
        ("cw --help >&-", 2, "error: standard output: closed; "),
        ("cw --hepl 2>/dev/full", 2, ""),
        ("cw --hepl 2>&-", 2, ""),
        ("mkdir gone; cd gone; rmdir ../gone; cw recipes", 2, "error: working directory: it cannot be found ("),
    ],
)
def test_streams_that_take_nothing(line: str, code: int, message: str, tmp_path: Path):
    done = shell(line, tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == (1 if message else 0)


def test_a_reader_that_is_gone_is_told_by_the_exit_code():
    read, wrote = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "clozeworks", "--help"], stdout=wrote, stderr=subprocess.PIPE)
    os.close(wrote)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_broken_pipe_goes_through_rich():
    class Gone(io.StringIO):
        def flush(self):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        SafeConsole(file=Gone()).print("text")


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")]
)
def test_memory_that_is_used_up_is_a_sentence(error, capsys, monkeypatch):
    def fail(words: list[str]):
        raise error

    monkeypatch.setattr(command_line, "read_command", fail)
    assert "memory: all that this process may have is used" in refused(capsys, "recipes")


def test_a_library_that_panics_is_a_sentence(capsys, monkeypatch):
    panic = type("PanicException", (BaseException,), {})

    def fail(words: list[str]):
        raise panic("index out of bounds")

    monkeypatch.setattr(command_line, "read_command", fail)
    assert "a library that reads them gave up (index out of bounds)" in refused(capsys, "recipes")


@pytest.mark.parametrize("columns", ["0", "1", "-4", "x", "²", "9" * 30])
def test_widths_that_no_terminal_has(columns: str, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert screen().width == WIDTH


def test_letters_that_the_output_lacks_are_escapes():
    given = {"text": "中 \U0001f600 \ud800"}
    for encoding in ("ascii", "utf-8", None):
        line = json_line(given, encoding)
        assert line.isascii()  # the lone surrogate has no UTF-8 either
        assert json.loads(line) == given
    done = subprocess.run(
        [sys.executable, "-c", "import clozeworks.cli.main as c; c._open_streams(); print('中')"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LANG": "C"},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"\\u4e2d\n"


# ---- inputs and outputs


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "{tuned}", "/dev/zero", "--text"],
        ["encode", "{tuned}", "/dev/zero"],
        ["evaluate", "{tuned}", "--test", "/dev/zero"],
        ["translate", "{tuned}", "--file", "/dev/zero"],
        ["prepare", "{rows}", "--out", "{new}", "--tokenizer", "{tuned}", "--add-tokens", "/dev/zero"],
        ["finetune", "classify", "--model", "{tuned}", "--train", "/dev/zero", "--out", "{new}"],
        ["fill-mask", "/dev/zero", "a [MASK]"],
    ],
    ids=" ".join,
)
def test_devices_are_no_input(words: list[str], tuned: Path, tmp_path: Path, capsys):
    file, new = write(tmp_path / "rows.jsonl", rows(4, 1)), tmp_path / "new"
    message = refused(capsys, *(word.format(tuned=tuned, rows=file, new=new) for word in words))
    assert "/dev/zero: a device or a socket" in message
    assert not new.exists()


def test_a_stream_may_be_a_pipe_which_stays_one(tuned: Path, tmp_path: Path, capsys):
    file, pipe = write(tmp_path / "rows.jsonl", rows(5, 1)), tmp_path / "pipe"
    assert main(["predict", str(tuned), str(file)]) == 0
    printed = capsys.readouterr().out
    assert main(["predict", str(tuned), str(file), "--out", "-"]) == 0
    assert capsys.readouterr().out == printed
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    assert main(["predict", str(tuned), str(file), "--out", str(pipe)]) == 0
    reader.join()
    assert got == [printed]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert not Path("-").exists()


def test_vectors_go_to_a_pipe_as_lines(tuned: Path, tmp_path: Path, capsys):
    (tmp_path / "lines.txt").write_text("the red fox\n")
    assert main(["encode", str(tuned), str(tmp_path / "lines.txt"), "--out", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "the red fox"
    assert main(["encode", str(tuned), str(tmp_path / "lines.txt"), "--out", os.devnull]) == 0
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize(
    ("out", "message"), [("-", "standard output; a file or directory"), ("/proc/x", "cannot be made")]
)
def test_other_outputs_are_files_or_directories(out: str, message: str, road: Path, capsys):
    assert message in refused(capsys, "export", road / "run", "--to", "hf", "--out", out)
    assert message in refused(capsys, "prepare", road / "corpus.txt", "--out", out)


# ---- numbers and options


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prepare", "x.txt", "--out", "x", "--processes", "1000000"], "from 1 to 1,024"),
        (["pretrain", "bert_tiny", "--data", "x", "--processes", "1000000"], "from 1 to 1,024"),
        (["show", "bert_tiny", "--set", "train.processes=1000000"], "at most 1,024"),
        (["vectors", "glove", "x.txt", "--out", "x.txt", "--workers", "1e400"], "a whole number"),
        (["generate", "run", "--seed", str(1 << 64)], "from 0 to 9,223,372,036,854,775,807"),
        (["generate", "run", "--temperature", "1e400"], "a number is needed"),
        (["generate", "run", "--count", str(1 << 40)], "a whole number"),
        (["finetune", "classify", "--learning-rate", "1e300"], "a number above 0"),
        (["prepare", "x.txt", "--out", "x", "--heldout", "nan"], "a share"),
        (["prepare", "x.txt", "--out", "x", "--out", "y"], "--out: given twice; it has one value"),
        (["prepare", "x.txt", "--out=x", "--out=y"], "--out: given twice"),
        (["show", "bert_tiny", "--json", "--json"], "--json: given twice"),
        (["prepare", "README.md", "--out", "x", "--encoding", "idna"], "the name of an encoding is needed"),
        (["help", "prepar"], "did you mean prepare?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_senseless_words_are_one_sentence(words: list[str], message: str, capsys):
    assert message in refused(capsys, *words)


@pytest.mark.parametrize("weight", ["nan", "inf", "-1", "0", "1e400", "1e300"])
def test_weights_of_a_mixture_are_shares(weight: str, road: Path, tmp_path: Path, capsys):
    words = "pretrain", "bert_tiny", "--data", f"{road}/data:{weight}", "--out", tmp_path / "run"
    assert "a share above 0 is needed" in refused(capsys, *words)


def test_the_meta_device_computes_nothing(tuned: Path, capsys):
    assert "--device: meta" in refused(capsys, "predict", tuned, "README.md", "--device", "meta")


def test_lists_are_joined(road: Path, capsys):
    message = refused(capsys, "pretrain", "bert_tiny", "--data", f"{road}/nowhere", "--data", f"{road}/data")
    assert "nowhere: no such path" in message


@pytest.mark.parametrize("words", [["help", "prepare"], ["help", "vectors", "glove"]], ids=" ".join)
def test_help_of_a_command(words: list[str], capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: clozeworks {' '.join(words[1:])} [--help]")


def test_texts_that_the_model_cannot_read_are_told(road: Path, tuned: Path, tmp_path: Path, capsys):
    given = [{"text": text, "label": label} for text, label in (("这部电影很好看", "a"), ("太差了不喜欢", "b"))] * 10
    file, lines = write(tmp_path / "rows.jsonl", given), tmp_path / "lines.txt"
    lines.write_text("这部电影很好看\n", encoding="utf-8")
    for words in (
        ["predict", tuned, file, "--out", tmp_path / "out.jsonl"],
        ["encode", road / "run", lines, "--out", tmp_path / "out.npy"],
        ["finetune", "classify", "--model", road / "run", "--train", file, "--dry-run", "--max-length", "16"],
    ):
        capsys.readouterr()
        assert main([*map(str, words)]) == 0
        assert "% of the tokens are [UNK]: the model cannot read them" in " ".join("".join(capsys.readouterr()).split())
