"""Sentence embeddings on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from clozeworks.cli.main import main
from clozeworks.inference.text_encoder import load
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
    assert ".npy or .jsonl" in refused(capsys, "encode", road / "run", tmp_path / "lines.txt", "--out", "v.csv")
