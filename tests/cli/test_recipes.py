"""clozeworks recipes, show and diff, and the ways to name a recipe."""

import pytest

from clozeworks.cli.diff import differences, shown
from clozeworks.cli.main import main
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.window import Window
from clozeworks.recipes import recipe
from tests.command_line import OWN_PART, facts, refused, size

pytestmark = pytest.mark.usefixtures("one_thread")


def test_recipes_and_their_kin(capsys):
    results = {row["name"]: row for row in facts(capsys, "recipes")["recipes"]}
    assert results["bert_base"]["parameters"] == 110_106_428
    assert results["bert_base"]["parent"] is None
    assert results["roberta_mini"]["parent"] == "roberta_base"
    assert results["roberta_base"]["parent"] == "bert_base"
    assert main(["recipes", "--tree"]) == 0
    assert "encoder.vocab=50,265" in capsys.readouterr().out


def test_show_counts_every_parameter_and_allocates_nothing(capsys):
    report = facts(capsys, "show", "bert_base")
    assert report["parameters"] == 110_106_428
    assert report["parameters_without_heads"] == 109_482_240
    parts = report["parts"]
    whole = {name: part["parameters"] for name, part in parts.items() if "." not in name}
    assert sum(whole.values()) == report["parameters"]
    for name in ("embed", "stack"):
        inside = [part["parameters"] for path, part in parts.items() if path.startswith(f"{name}.")]
        assert sum(inside) == whole[name]
    # 12 layers: 4 D^2 + 8 D^2 products and 2 L D for scores and for values, twice each.
    assert parts["stack"]["flops_per_token"] == pytest.approx(12 * 2 * (12 * 768**2 + 2 * 512 * 768))
    assert report["memory_bytes"] > 16 * report["parameters"]
    assert (
        facts(capsys, "show", "bert_base", "--set", "train.micro_tokens=512")["memory_bytes"] < report["memory_bytes"]
    )


def test_diff_is_the_difference(capsys):
    report = facts(capsys, "diff", "bert_base", "bert_base_chinese")
    assert report == {"name": ["bert_base", "bert_base_chinese"], "encoder.vocab": [30522, 21128]}
    assert main(["diff", "bert_base", "bert_base"]) == 0
    assert "no difference" in capsys.readouterr().out


def test_layers_that_are_nearly_alike_are_reported_once():
    result = differences(recipe("roberta_mini"), recipe("longformer_mini"))
    assert set(result) == {"name", "encoder.stack.block.mixer", "objective.segments.length"}
    assert shown(result["encoder.stack.block.mixer"][1]).endswith("dropout=0.1) with window.left=16, 32, 64, 128")
    result = differences(recipe("roberta_base"), recipe("longformer_base"))
    assert result["encoder.stack.block.mixer"] == (Attention(12, 0.1), GlobalWindow(12, Window(256), 0.1))
    windows = tuple(Window(left, dilation=(1, 1 + left)) for left in (1, 2, 4))
    assert shown(windows) == "3 x Window(left=1, dilation=(1, 2)) with left=1, 2, 4; dilation.1=2, 3, 5"
    assert shown((Window(1),) * 3) == "3 x Window(left=1)"
    assert shown((Window(1), Window(2))) == "(Window(left=1), Window(left=2))"
    assert shown((Window(1), Window(1), LayerNorm())) == "(Window(left=1), Window(left=1), LayerNorm())"


def test_a_recipe_may_be_a_file_or_a_function(road, tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text(OWN_PART)
    assert facts(capsys, "show", f"{own}:averaged")["name"] == "averaged"
    assert "did you mean averaged" in refused(capsys, "show", f"{own}:avreaged")
    assert facts(capsys, "show", road / "run" / "recipe.json")["name"] == "bert_tiny"
    assert facts(capsys, "diff", road / "run", "bert_tiny")["encoder.vocab"] == [size(road / "data"), 30522]


def test_many_parts_are_reported_in_short_and_few_in_full():
    block = recipe("lite_transformer_mini").encoder.stack.block
    assert shown(block).startswith("3 x Block(mixer=Split(")
    assert shown(block).endswith(" with mixer.branches.1.kernel=3, 7, 15")
    assert shown((Attention(2), Attention(4))) == "(Attention(heads=2), Attention(heads=4))"
    assert shown(()) == "()"
