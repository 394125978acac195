"""Sentence embeddings on the command line."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from rich.console import Console

from clozeworks.cli.encode import count_lines, write_array
from clozeworks.cli.main import main
from clozeworks.inference.text_encoder import load
from clozeworks.screen.progress_bar import Bar
from tests.command_line import facts, refused

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = ["the red fox runs.", "a small hen sleeps near the old tree.", "the dog."]


def test_lines_and_records_give_the_vectors_of_the_library(road: Path, tmp_path: Path, capsys):
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"review": text}) + "\n" for text in TEXTS))
    wanted = load(road / "run").encode(TEXTS)
    report = facts(capsys, "encode", road / "run", tmp_path / "lines.txt", "--out", tmp_path / "v.npy")
    assert report["texts"] == 3
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=1e-6)
    given = ["encode", road / "run", tmp_path / "rows.jsonl", "--columns", "text=review"]
    assert main([str(word) for word in (*given, "--normalize", "--device", "cpu")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    unit = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose([line["embedding"] for line in lines], unit, atol=1e-5)


def test_max_pooling_is_the_maximum_over_the_vectors_of_tokens(road: Path, tmp_path: Path, capsys):
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS) + "\n")
    out = tmp_path / "v.npy"
    facts(capsys, "encode", road / "run", tmp_path / "lines.txt", "--pooling", "max", "--out", out)
    encoder = load(road / "run")
    for text, vector in zip(TEXTS, np.load(out), strict=True):
        ids, _ = encoder.add_special_tokens(encoder.tokenizer.encode([text])[0].ids.tolist())
        last = encoder.forward(torch.tensor([ids])).last_hidden_state[0]
        np.testing.assert_allclose(vector, last.max(0).values.detach().numpy(), atol=1e-5)


def test_another_ending_is_refused(road: Path, tmp_path: Path, capsys):
    (tmp_path / "lines.txt").write_text("a fox\n")
    assert ".npy, .parquet or .jsonl" in refused(
        capsys, "encode", road / "run", tmp_path / "lines.txt", "--out", "v.csv"
    )


def test_columns_of_a_parquet_file_are_texts_and_vectors(road: Path, tmp_path: Path, capsys):
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS) + "\n")
    report = facts(capsys, "encode", road / "run", tmp_path / "lines.txt", "--out", tmp_path / "v.parquet")
    assert report["texts"] == 3
    table = pyarrow.parquet.read_table(tmp_path / "v.parquet")
    assert table["text"].to_pylist() == TEXTS
    given = np.array(table["embedding"].to_pylist(), np.float32)
    np.testing.assert_allclose(given, load(road / "run").encode(TEXTS), atol=1e-6)


def test_an_array_of_many_pieces_is_what_numpy_writes(tmp_path: Path):
    vectors = np.random.default_rng(0).normal(size=(1037, 7)).astype(np.float32)
    pieces = [([""] * len(some), some) for some in np.array_split(vectors, 9)]
    (tmp_path / "v.npy").touch()
    assert write_array(iter(pieces), tmp_path / "v.npy", 7) == 1037
    np.save(tmp_path / "whole.npy", vectors)
    assert (tmp_path / "v.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    (tmp_path / "none.npy").touch()
    assert write_array(iter([]), tmp_path / "none.npy", 7) == 0
    assert np.load(tmp_path / "none.npy").shape == (0, 7)


def test_without_arrow_a_table_is_refused_before_anything_is_read(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = refused(capsys, "encode", tmp_path / "no model", tmp_path / "no.txt", "--out", "v.parquet")
    assert "pip install 'clozeworks[arrow]'" in said


def test_a_bar_says_how_many_and_how_fast(tmp_path: Path):
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    assert count_lines(tmp_path / "lines.txt") == 2
    assert count_lines(tmp_path / "rows.parquet") is None
    assert count_lines("-") is None
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with Bar(console, unit="texts") as bar:
        bar.update("encoding", 1, None)
        bar.update("encoding", 2, 4)
        bar.progress.refresh()
    assert "2 texts, " in stream.getvalue()
    assert " a second" in stream.getvalue()
    assert " 50%" in stream.getvalue()
