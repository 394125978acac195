"""clozeworks recipes, show and diff, and the ways to name a recipe."""

import pytest

from clozeworks.cli import main
from tests.cli import OWN_PART, facts, refused, size

pytestmark = pytest.mark.usefixtures("one_thread")


def test_recipes_and_their_kin(capsys):
    found = {row["name"]: row for row in facts(capsys, "recipes")["recipes"]}
    assert found["bert_base"]["parameters"] == 110_106_428
    assert found["bert_base"]["parent"] is None
    assert found["roberta_mini"]["parent"] == "roberta_base"
    assert found["roberta_base"]["parent"] == "bert_base"
    assert main(["recipes", "--tree"]) == 0
    assert "encoder.vocab=50,265" in capsys.readouterr().out


def test_show_counts_every_parameter_and_allocates_nothing(capsys):
    found = facts(capsys, "show", "bert_base")
    assert found["parameters"] == 110_106_428
    assert found["parameters_without_heads"] == 109_482_240
    parts = found["parts"]
    whole = {name: part["parameters"] for name, part in parts.items() if "." not in name}
    assert sum(whole.values()) == found["parameters"]
    for name in ("embed", "stack"):
        inside = [part["parameters"] for path, part in parts.items() if path.startswith(f"{name}.")]
        assert sum(inside) == whole[name]
    # 12 layers: 4 D^2 + 8 D^2 products and 2 L D for scores and for values, twice each.
    assert parts["stack"]["flops_per_token"] == pytest.approx(12 * 2 * (12 * 768**2 + 2 * 512 * 768))
    assert found["memory_bytes"] > 16 * found["parameters"]
    assert facts(capsys, "show", "bert_base", "--set", "train.micro_tokens=512")["memory_bytes"] < found["memory_bytes"]


def test_diff_is_the_difference(capsys):
    found = facts(capsys, "diff", "bert_base", "bert_base_chinese")
    assert found == {"name": ["bert_base", "bert_base_chinese"], "encoder.vocab": [30522, 21128]}
    assert main(["diff", "bert_base", "bert_base"]) == 0
    assert "no difference" in capsys.readouterr().out


def test_a_recipe_may_be_a_file_or_a_function(road, tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text(OWN_PART)
    assert facts(capsys, "show", f"{own}:averaged")["name"] == "averaged"
    assert "did you mean averaged" in refused(capsys, "show", f"{own}:avreaged")
    assert facts(capsys, "show", road / "run" / "recipe.json")["name"] == "bert_tiny"
    assert facts(capsys, "diff", road / "run", "bert_tiny")["encoder.vocab"] == [size(road / "data"), 30522]
