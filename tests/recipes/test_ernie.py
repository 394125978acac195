"""Three stages, one line each, each from the weights of the one before."""

import json

import pytest
import torch

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.inference.text_encoder import load
from clozeworks.recipes import recipe

STAGES = ("basic", "phrase", "entity")
SMALL = ["train.steps=3", "train.batch_tokens=256", "objective.segments.length=32", "train.precision=fp32",
         "encoder.stack.depth=1"]  # fmt: skip


def test_a_stage_is_one_line():
    for stage in STAGES:
        r = recipe(f"ernie_{stage}_mini")
        assert r.objective.corruption.stage == stage  # pyright: ignore[reportOptionalMemberAccess]
        assert cw.diff("ernie_basic_mini", r).keys() <= {"name", "objective.corruption.stage"}


def test_the_released_shape():
    r = recipe("ernie_base")
    assert cw.count_parameters(r, heads=False) == (18000 + 513 + 2 + 2) * 768 + 12 * 7_087_872 + 769 * 768
    block = r.encoder.stack.block_at(0)
    assert (r.encoder.vocab, r.encoder.embed.positions.length) == (18000, 513)  # pyright: ignore[reportOptionalMemberAccess]
    assert (block.ffn.activation, block.norm.eps) == ("relu", 1e-5)  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.usefixtures("one_thread")
def test_the_chain(tmp_path, capsys):
    rows = [
        {
            "text": f"我喜欢吃哈尔滨正宗烤冷面。第{n}天他去北京看朋友。大家都说好。",
            "phrases": [[7, 12]],
            "entities": [[4, 7]],
        }
        for n in range(60)
    ]
    (tmp_path / "text.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    words = ["prepare", str(tmp_path / "text.jsonl"), "--out", str(tmp_path / "data"), "--lang", "zh"]
    assert main([*words, "--tokenizer", "chars"]) == 0
    before = None
    for stage in STAGES:
        words = ["pretrain", f"ernie_{stage}_mini", "--data", str(tmp_path / "data"), "--out", str(tmp_path / stage)]
        words += [word for change in SMALL for word in ("--set", change)]
        assert main([*words, *(["--from", str(tmp_path / before)] if before else [])]) == 0
        before = stage
    output = capsys.readouterr()
    assert "left behind" not in output.out + output.err
    first, last = (load(tmp_path / stage) for stage in ("basic", "entity"))
    tables = [encoder.model.encoder.embed.words.table.weight for encoder in (first, last)]
    assert 0 < float((tables[0] - tables[1]).detach().abs().max()) < 0.01  # the same weights, a few steps later
    assert last.recipe.objective.corruption.stage == "entity"  # pyright: ignore[reportOptionalMemberAccess]
    assert torch.isfinite(tables[1]).all()
