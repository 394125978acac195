"""clozeworks inspect layers, clozeworks inspect spans"""

import pytest
import torch

from clozeworks.cli.main import main
from tests.command_line import facts, refused

pytestmark = pytest.mark.usefixtures("one_thread")


def test_layers_of_a_run_and_of_a_directory_of_others(road, capsys):
    report = facts(capsys, "inspect", "layers", road / "run", road / "hf", "--data", road / "data")["models"]
    assert [each["model"] for each in report] == [str(road / "run"), str(road / "hf")]
    ours, theirs = report
    assert [row["layer"] for row in ours["layers"]] == [1, 2]
    assert ours["tokens"] > 100
    for row in ours["layers"]:
        assert row["distance"] > 0
        assert -1 <= row["cosine"] <= 1
    for name in ("distance", "cosine"):  # the same weights, read as rows of another length
        mine, other = ([row[name] for row in each["layers"]] for each in (ours, theirs))
        assert other == pytest.approx(mine, rel=0.2)
    assert set(ours["deviation"]) == {"distance", "cosine"}


def test_layers_as_a_chart_and_as_a_plot(road, tmp_path, capsys):
    words = ["inspect", "layers", str(road / "run"), "--data", str(road / "data")]
    assert main(words) == 0
    output = capsys.readouterr().out
    assert "tokens of the held-out text" in " ".join(output.split())
    assert "deviation" in output
    assert output.count("█") + output.count("#") > 20
    for ending in ("svg", "png"):
        assert main([*words, "--out", str(tmp_path / f"layers.{ending}")]) == 0
        assert (tmp_path / f"layers.{ending}").stat().st_size > 2000
    assert main([*words, "--out", str(tmp_path / "again.svg")]) == 0
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "layers.svg").read_bytes()


def test_mistakes(road, tmp_path, capsys):
    run, data = road / "run", road / "data"
    assert "one of layers, spans is needed; did you mean layers" in refused(
        capsys, "inspect", "layer", run, "--data", data
    )
    assert "no such path" in refused(capsys, "inspect", "layers", road / "rnu", "--data", data)
    assert "the ending chooses the format" in refused(
        capsys, "inspect", "layers", run, "--data", data, "--out", tmp_path / "x.gif"
    )
    assert "no --data" in refused(capsys, "inspect", "layers", run)
    assert main(["prepare", str(road / "more.txt"), "--out", str(tmp_path / "other"), "--vocab", "90"]) == 0
    assert "another tokenizer" in refused(capsys, "inspect", "layers", run, "--data", tmp_path / "other")


def test_spans_of_a_model_as_a_table_and_as_a_plot(tmp_path, capsys):
    import clozeworks as cw
    from clozeworks.inference.text_encoder import TextEncoder
    from clozeworks.recipe import build

    r = cw.recipe("adaptive_span_mini")
    r.encoder.width, r.encoder.vocab, r.encoder.stack.depth = 64, 40, 2
    model = build(r)
    model.encoder.stack.blocks[1].mixer.bias.share.data[:] = torch.tensor([0.0, 0.25, 0.5, 1.0])
    cw.save(TextEncoder(model, None, r), tmp_path / "model")
    (report,) = facts(capsys, "inspect", "spans", tmp_path / "model")["models"]
    assert [layer["spans"] for layer in report["layers"]] == [[0.0] * 4, [0.0, 128.0, 256.0, 512.0]]
    assert [layer["average_span"] for layer in report["layers"]] == [32, 256]
    assert (report["average_span"], report["limit"], report["ramp"]) == (144, 512, 32)
    assert main(["inspect", "spans", str(tmp_path / "model"), "--out", str(tmp_path / "spans.svg")]) == 0
    assert "512 256 128 0" in capsys.readouterr().out
    assert (tmp_path / "spans.svg").stat().st_size > 2000


def test_spans_that_are_not_there(road, capsys):
    assert "no span is learned" in refused(capsys, "inspect", "spans", road / "run")
    assert "no text is read" in refused(capsys, "inspect", "spans", road / "run", "--data", road / "data")
    assert "while they read a text" in refused(capsys, "inspect", "layers", road / "run")
