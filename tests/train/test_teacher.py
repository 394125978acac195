"""Runs that learn from a teacher: refused, taught, interrupted, and without it afterwards."""

import copy
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate.text import evaluate_text
from clozeworks.exchange import checkpoint
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.mixer import Mixer
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.lsh import LSH
from clozeworks.nn.positions import LearnedPositions
from clozeworks.objectives.losses.attention_scores import AttentionScores
from clozeworks.objectives.losses.hidden_cosine import HiddenCosine
from clozeworks.objectives.losses.hidden_states import HiddenStates
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.relations import Relations
from clozeworks.objectives.losses.soft_targets import SoftTargets
from clozeworks.objectives.segments import FullSentences, PairStream
from clozeworks.optim.settings import Distil
from clozeworks.recipe import Recipe, build
from clozeworks.starts.transfer import take_layers
from clozeworks.train import metrics_log
from clozeworks.train.pretrain import pretrain
from clozeworks.train.resources import memory_check
from clozeworks.train.resources.cost import measure_cost
from clozeworks.train.teacher import check_teacher
from tests.train.conftest import tiny_recipe

Tiny = Callable[..., Recipe]


def student(steps: int = 8, **train: object) -> Recipe:
    """Half of the teacher's layers, and its three losses."""
    r = tiny_recipe(steps, **train)
    r.name = "student"
    r.encoder.embed.segments, r.encoder.pooler = 0, None
    r.objective.segments = FullSentences(32)
    r.objective.losses = (SoftTargets(5.0), MaskedLM(2.0), HiddenCosine(1.0))
    r.distil = Distil(freeze_positions=True)
    return r


def teacher_recipe(tokenizer: Tokenizer | None = None, **encoder: object) -> Recipe:
    r = tiny_recipe()
    r.name, r.encoder.stack.depth, r.train.seed = "teacher", 4, 9
    if tokenizer is not None:
        r.encoder.vocab = tokenizer.size
    for name, value in encoder.items():
        setattr(r.encoder, name, value)
    return r


@pytest.fixture(scope="module")
def tokenizer(data: Path) -> Tokenizer:
    return Tokenizer.load(data)


@pytest.fixture(scope="module")
def teacher(tokenizer: Tokenizer) -> TextEncoder:
    r = teacher_recipe(tokenizer)
    return TextEncoder(build(r), tokenizer, r)


@pytest.fixture(scope="module")
def whole(data: Path, teacher: TextEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("taught") / "run"
    torch.set_num_threads(1)
    result = pretrain(student(), [(data, 1.0)], run, teacher=teacher, progress=False)
    assert result.finished
    assert "starting from layers 0, 3 of the teacher" in result.notes
    return run


def test_every_loss_is_logged_and_measured(whole: Path):
    rows = metrics_log.read(whole / "metrics.jsonl")
    names = {"masked_lm", "soft_targets", "hidden_cosine"}
    assert all(names <= row.keys() for row in rows)
    assert {row.get("split") for row in rows} == {None, "heldout"}
    trained = [row for row in rows if "split" not in row]
    assert trained[-1]["loss"] < trained[0]["loss"]
    last = rows[-1]
    assert last["loss"] == pytest.approx(5 * last["soft_targets"] + 2 * last["masked_lm"] + last["hidden_cosine"])


def test_the_positions_are_still_the_teachers(whole: Path, teacher: TextEncoder):
    newest = checkpoint.newest(whole)
    assert newest is not None
    name = "encoder.embed.positions.table.weight"
    assert torch.equal(newest.tensors()[name], dict(teacher.model.named_parameters())[name])
    assert not any("positions" in key for key in newest.tensors(checkpoint.OPTIMIZER))


def test_the_student_does_without_the_teacher(whole: Path, data: Path):
    result = evaluate_text(cw.load(whole), data)
    row = [row for row in metrics_log.read(whole / "metrics.jsonl") if row.get("split") == "heldout"][-1]
    assert result["masked_lm"] == pytest.approx(row["masked_lm"], rel=1e-5)
    assert result["loss"] == pytest.approx(2 * result["masked_lm"])
    assert "soft_targets" not in result


def test_resumed_is_uninterrupted(whole: Path, data: Path, teacher: TextEncoder, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "step-00000008")
    result = pretrain(student(), [(data, 1.0)], run, teacher=teacher, progress=False)
    assert result.resumed == 5
    for file in (checkpoint.MODEL, checkpoint.OPTIMIZER):
        assert (result.checkpoint / file).read_bytes() == (whole / "step-00000008" / file).read_bytes()


def test_a_run_keeps_its_teacher(whole: Path, data: Path, teacher: TextEncoder):
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    record = json.loads((whole / "run.json").read_text())["teacher"]
    other = dataclasses.replace(teacher, model=build(dataclasses.replace(teacher.recipe)))
    with torch.no_grad():
        next(other.model.parameters())[0, 0] += 1
    with pytest.raises(InputError, match=rf"another teacher .*\(teacher {record['digest'][:12]} -> teacher .*--out"):
        pretrain(student(), [(data, 1.0)], whole, teacher=other, progress=False)
    with pytest.raises(InputError, match="--teacher: none; student learns from a teacher; give --teacher DIR"):
        pretrain(student(), [(data, 1.0)], whole, progress=False)
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def test_a_teacher_that_nobody_listens_to_is_refused(data: Path, teacher: TextEncoder, tiny: Tiny, tmp_path: Path):
    with pytest.raises(InputError, match="no loss of this recipe reads a teacher"):
        pretrain(tiny(), [(data, 1.0)], tmp_path / "run", teacher=teacher)
    assert not list(tmp_path.iterdir())


def small(positions: int) -> dict[str, object]:
    r = teacher_recipe()
    r.encoder.embed.positions = LearnedPositions(positions)
    return {"embed": r.encoder.embed}


def with_heads(heads: int) -> dict[str, object]:
    return with_mixer(Attention(heads))


def with_mixer(mixer: Mixer) -> dict[str, object]:
    r = teacher_recipe()
    r.encoder.stack.block_at(0).mixer = mixer
    return {"stack": r.encoder.stack}


WRONG = {
    "vocabulary": ({"vocab": 9}, SoftTargets(), "a model of 9 tokens; the data's tokenizer has"),
    "positions": (small(16), SoftTargets(), "a model of 16 positions; examples are up to 32.*segments.length=16"),
    "width": ({"width": 64}, HiddenCosine(), r"losses\.1 = width 32, and teacher has 64"),
    "map": ({"width": 64}, HiddenStates(), r"losses\.1\.width = None: teacher has hidden states of width 64"),
    "heads": (with_heads(4), AttentionScores(), "2 heads, and teacher has 4"),
    "hashing": (
        with_mixer(LSH(2)),
        Relations(),
        "teacher has layers without heads, or whose heads score some pairs alone",
    ),
    "relations": (with_heads(4), Relations(), "2 heads, and teacher has 4"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_teacher_that_does_not_fit_is_refused(case: str, tokenizer: Tokenizer):
    encoder, loss, message = WRONG[case]
    r = student()
    r.distil, r.objective.losses = None, (MaskedLM(), loss)
    wrong = teacher_recipe(tokenizer, **encoder)
    with pytest.raises(InputError, match=message):
        check_teacher(r, tokenizer, TextEncoder(None, tokenizer, wrong))  # pyright: ignore[reportArgumentType]


def test_a_teacher_that_lacks_the_segments_of_the_examples_is_refused(tokenizer: Tokenizer, teacher: TextEncoder):
    r = student()
    r.objective.segments = PairStream(32, reuse=12)
    with pytest.raises(RecipeError, match=r"teacher\.encoder\.embed\.segments = 2: examples of PairStream have 3"):
        check_teacher(r, tokenizer, teacher)


def test_attention_behind_a_memory_is_not_compared():
    r = cw.recipe("transformer_xl_mini")
    r.objective.losses = (*r.objective.losses, AttentionScores())
    with pytest.raises(RecipeError, match=r"AttentionScores: pairs within a row are compared, and the stack also"):
        spec.check(r, r.name)


def test_a_teacher_without_words_is_refused(tokenizer: Tokenizer, teacher: TextEncoder):
    bare = copy.deepcopy(teacher.recipe)
    bare.objective.losses = ()
    with pytest.raises(RecipeError, match=r"losses\.0 = teacher has no masked-LM head"):
        check_teacher(student(), tokenizer, dataclasses.replace(teacher, recipe=bare))


def test_a_teacher_of_other_ids_is_refused(foreign_data: Path, tokenizer: Tokenizer, teacher: TextEncoder):
    with pytest.raises(InputError, match=r"another tokenizer than the data has.*--tokenizer set to the teacher's"):
        check_teacher(student(), tokenizer, dataclasses.replace(teacher, tokenizer=Tokenizer.load(foreign_data)))
    (note,) = check_teacher(student(), tokenizer, dataclasses.replace(teacher, tokenizer=None))
    assert "taken on trust" in note


def test_layers_that_the_teacher_lacks_are_refused(tokenizer: Tokenizer, teacher: TextEncoder):
    r = student()
    r.distil = Distil((0, 4))
    with pytest.raises(RecipeError, match=r"distil\.start = \[0, 4\]: teacher has layers 0 to 3"):
        check_teacher(r, tokenizer, teacher)


def test_layers_are_copied(tokenizer: Tokenizer):
    theirs = teacher_recipe(tokenizer)
    theirs.encoder.vocab += 7  # rows that no token uses
    theirs.encoder.embed.positions = LearnedPositions(512, offset=2)
    source, r = build(theirs), student()
    r.encoder.vocab = tokenizer.size
    model = build(r)
    assert take_layers(source, model, (1, 3)) == ["starting from layers 1, 3 of the teacher"]
    own, other = dict(model.named_parameters()), dict(source.named_parameters())
    for mine, taken in ((0, 1), (1, 3)):
        for name, parameter in model.encoder.stack.blocks[mine].named_parameters():
            assert torch.equal(parameter, other[f"encoder.stack.blocks.{taken}.{name}"]), name
    words, rows = "encoder.embed.words.table.weight", tokenizer.size
    assert torch.equal(own[words], other[words][:rows])
    assert torch.equal(own["heads.masked_lm.bias"], other["heads.masked_lm.bias"][:rows])
    assert torch.equal(own["heads.masked_lm.dense.weight"], other["heads.masked_lm.dense.weight"])
    table = "encoder.embed.positions.table.weight"
    assert torch.equal(own[table], other[table][2:])
    theirs.encoder.vocab -= 7
    source = build(theirs)
    (note,) = take_layers(model, source, (0, 0, 1, 1))
    assert note.endswith("; fresh: encoder.embed.segments, encoder.pooler.dense, heads.sentence_pair.out")
    table = source.encoder.embed.positions
    assert table is not None
    assert torch.equal(table(torch.arange(9)), own["encoder.embed.positions.table.weight"][:9])


def test_what_does_not_fit_by_shape_is_refused(data: Path, tokenizer: Tokenizer, tmp_path: Path):
    wide = teacher_recipe(tokenizer, width=64)
    r = student()
    r.objective.losses = (SoftTargets(), MaskedLM())
    with pytest.raises(InputError, match=r"distil\.start, encoder\.embed\.words.*set distil\.start=None"):
        pretrain(r, [(data, 1.0)], tmp_path / "run", teacher=TextEncoder(build(wide), tokenizer, wide))
    assert not list(tmp_path.iterdir())
    r.distil = None
    assert pretrain(r, [(data, 1.0)], tmp_path / "run", teacher=TextEncoder(build(wide), tokenizer, wide)).finished


def test_every_loss_trains(data: Path, tokenizer: Tokenizer, tmp_path: Path):
    wide = teacher_recipe(tokenizer, width=64, init=0.2)
    r = student(12, learning_rate=1e-2)
    r.distil, r.objective.losses = None, (HiddenStates(width=64), AttentionScores(), Relations())
    pretrain(r, [(data, 1.0)], tmp_path / "run", teacher=TextEncoder(build(wide), tokenizer, wide), progress=False)
    rows = [row for row in metrics_log.read(tmp_path / "run" / "metrics.jsonl") if "split" not in row]
    for loss in r.objective.losses:
        assert rows[-1][loss.name] < rows[0][loss.name]
    encoder = cw.load(tmp_path / "run")
    assert encoder.model.head("hidden_states") is not None
    with pytest.raises(InputError, match="a head that predicts is needed"):
        evaluate_text(encoder, data)


def test_memory_counts_the_teacher():
    r, theirs = student(), TextEncoder(None, None, teacher_recipe())  # pyright: ignore[reportArgumentType]
    alone, taught = measure_cost(r), measure_cost(r, theirs)
    assert taught.teacher == measure_cost(theirs.recipe).parameters
    assert taught.step == dataclasses.replace(taught, teacher=0).step + 4 * taught.teacher
    assert taught.passes > alone.passes  # what is compared
    assert memory_check.describe(r, "cpu", theirs).startswith("needs about ")


def test_trouble_goes_back_to_the_teachers_layers(data: Path, teacher: TextEncoder, tmp_path: Path):
    from clozeworks.train.pretrain import fit_to_data, open_data
    from clozeworks.train.pretraining_batches import PretrainingBatches
    from clozeworks.train.startup.setup import Start, set_up

    corpora, tokenizer = open_data([(data, 1.0)])
    recipe = fit_to_data(student(), tokenizer)
    batches = PretrainingBatches(recipe, corpora, tokenizer.vocabulary())
    start = Start(teacher=teacher)
    setup = set_up(tmp_path / "run", recipe, tokenizer, batches, device="cpu", start=start)
    again = setup.begin()
    for (name, a), b in zip(setup.model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), name
    block = dict(setup.model.encoder.stack.blocks[1].named_parameters())["ffn.up.weight"]
    assert torch.equal(block, teacher.model.encoder.stack.blocks[3].ffn.up.weight)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["replicate", "shard"])
def test_two_processes_give_what_one_gives(way: str, data: Path, teacher: TextEncoder, tmp_path: Path):
    from tests.train.test_distributed import LIMIT, command, same, started

    r = student(10)
    r.objective.losses = (*r.objective.losses, HiddenStates(), Relations())
    r.encoder.stack.block_at(0).mixer = Attention(2)
    (tmp_path / "recipe.json").write_text(json.dumps(spec.to_dict(r)))
    cw.save(teacher, tmp_path / "teacher")
    pretrain(r, [(data, 1.0)], tmp_path / "one", teacher=teacher, progress=False)
    more = ["--teacher", tmp_path / "teacher", "--processes", 2, "--set", f"train.parallel={way}"]
    child = started(command(tmp_path / "two", data, tmp_path / "recipe.json", *more))
    try:
        _, err = child.communicate(timeout=LIMIT)
    finally:
        child.kill()
    assert child.returncode == 0, err
    same(tmp_path / "two", tmp_path / "one")
