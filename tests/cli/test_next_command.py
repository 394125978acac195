"""What is offered next is what the model can do."""

from pathlib import Path

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.text_encoder import TextEncoder, save
from clozeworks.recipe import build


def test_a_model_without_a_head_is_not_offered_for_guessing(tmp_path: Path, capsys):
    r = cw.recipe("bert_tiny")
    tokenizer = Tokenizer.train(["red foxes run"] * 9, "wordpiece", 64)
    r.encoder.vocab, r.objective.losses = tokenizer.size, ()
    save(TextEncoder(build(r).eval(), tokenizer, r), tmp_path / "bare")
    assert main(["import", str(tmp_path / "bare"), "--out", str(tmp_path / "again")]) == 0
    output = capsys.readouterr().out
    assert "finetune classify" in output
    assert "fill-mask" not in output
    assert "pretrain" not in output
