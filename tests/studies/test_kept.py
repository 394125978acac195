"""What is kept for the way back: flat where layers are computed back, a line where they are not."""

import json

from studies import kept


def test_a_reversible_stack_keeps_as_much_at_any_depth(capsys, tmp_path):
    assert kept.main(["--depths", "2,4", "--plot", str(tmp_path / "kept.svg")]) == 0
    results = json.loads(capsys.readouterr().out)
    result = results["bytes"]
    assert result["reversible"]["2"] == result["reversible"]["4"]
    pair = 4 * results["rows"] * results["length"] * 2 * results["width"]
    assert pair < result["reversible"]["2"] < 1.1 * pair
    assert result["ordinary"]["4"] > 1.8 * result["ordinary"]["2"]
    assert result["ordinary, feed-forward by 64"]["4"] < 0.75 * result["ordinary"]["4"]
    assert results["orders"]["4"] == 2 * results["orders"]["2"] < 0.2 * pair
    assert (tmp_path / "kept.svg").stat().st_size > 1000


def test_bad_input_is_reported_in_one_sentence(capsys):
    assert kept.main(["--depths", "two"]) == 2
    assert capsys.readouterr().err.startswith("error: --depths: two")
