"""Directories of sentence-transformers, both ways; the reference is that library's arithmetic on `transformers`."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.pooling import Pooling, PoolingMode
from clozeworks.recipe import build

transformers = pytest.importorskip("transformers")

WORDS = "the river runs fast and a stone falls into cold water near an old mill"
TEXTS = ["the river", "a stone falls into cold water near an old mill and the river runs fast", "cold"]


def small(**more: object) -> TextEncoder:
    tokenizer = Tokenizer.train([WORDS], vocab=90)
    recipe = cw.recipe("bert_tiny")
    recipe.encoder.vocab, recipe.encoder.init = tokenizer.size, 0.15
    recipe.pooling = Pooling(**more)  # pyright: ignore[reportArgumentType]
    return TextEncoder(build(recipe).eval(), tokenizer, recipe)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(("pool", "length"), [("mean", None), ("mean", 7), ("first", 7), ("max", None)])
def test_what_is_written_is_read_as_theirs(pool: PoolingMode, length: int | None, normalise: bool, tmp_path: Path):
    ours = small(mode=pool, length=length, normalise=normalise)
    save(ours, tmp_path / "st", format="sentence-transformers")
    stored = json.loads((tmp_path / "st" / "1_Pooling" / "config.json").read_text())
    assert [name for name, on in stored.items() if on is True and name != "include_prompt"] == [
        {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}[pool]
    ]
    most = json.loads((tmp_path / "st" / "sentence_bert_config.json").read_text())["max_seq_length"]
    assert most == (length or 512)
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "st")
    model, loading = transformers.AutoModel.from_pretrained(tmp_path / "st", output_loading_info=True)
    assert not loading["unexpected_keys"]
    given = reader(TEXTS, padding=True, truncation=True, max_length=most, return_tensors="pt")
    with torch.no_grad():
        last = model.eval()(**given).last_hidden_state
    real = given["attention_mask"][..., None]
    wanted = {
        "mean": (last * real).sum(1) / real.sum(1),
        "first": last[:, 0],
        "max": torch.where(real.bool(), last, -1e9).amax(1),
    }[pool].numpy()
    if normalise:
        wanted = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(ours.encode(TEXTS), wanted, atol=1e-5)
    again = load(tmp_path / "st")
    assert again.recipe.pooling == Pooling(pool, normalise, most)
    np.testing.assert_allclose(again.encode(TEXTS), wanted, atol=1e-5)
    save(again, tmp_path / "own")
    assert load(tmp_path / "own").recipe.pooling == again.recipe.pooling


def test_what_is_asked_for_goes_before_what_the_recipe_says():
    ours = small(mode="max", normalise=True)
    ours.model.encoder.pooler = None
    np.testing.assert_array_equal(ours.encode(TEXTS, pool="mean", normalise=False), _plain(ours))
    with pytest.raises(InputError, match="the model has no pooler"):
        ours.encode(TEXTS, pool="pooled")
    with pytest.raises(InputError, match="pool: median; one of mean, first, max, pooled is needed"):
        ours.encode(TEXTS, pool="median")  # pyright: ignore[reportArgumentType]


def _plain(ours: TextEncoder) -> np.ndarray:
    ours.recipe.pooling = None
    return ours.encode(TEXTS)


def test_a_prompt_is_written_before_every_text(tmp_path: Path):
    ours = small(prompt="the old ")
    np.testing.assert_array_equal(ours.encode(["mill"]), small().encode(["the old mill"]))
    save(ours, tmp_path / "st", format="sentence-transformers")
    assert load(tmp_path / "st").recipe.pooling == Pooling(prompt="the old ", length=512)


def test_a_model_in_a_folder_of_its_own(tmp_path: Path):
    save(small(), tmp_path / "st", format="sentence-transformers")
    inner = tmp_path / "st" / "0_Transformer"
    inner.mkdir()
    for file in list((tmp_path / "st").iterdir()):
        if file.is_file() and file.name not in ("modules.json", "config_sentence_transformers.json"):
            shutil.move(file, inner / file.name)
    modules = json.loads((tmp_path / "st" / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (tmp_path / "st" / "modules.json").write_text(json.dumps(modules))
    np.testing.assert_allclose(load(tmp_path / "st").encode(TEXTS), small().encode(TEXTS), atol=1e-6)


def test_what_no_part_does_is_refused(tmp_path: Path):
    save(small(normalise=True), tmp_path, format="sentence-transformers")
    files = {name: tmp_path / name for name in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json")}
    modules = json.loads(files["modules.json"].read_text())
    dense = [*modules, {"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"}]
    for name, content, match in (
        ("modules.json", dense, "modules Transformer, Pooling, Normalize, Dense; Transformer, Pooling and Normalize"),
        ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "pooling by weightedmean; one of cls, mean, max"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pooling by cls and mean"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
            "pooling by cls and max",
        ),
        ("modules.json", {}, "an object where a list is needed"),
        ("modules.json", [], "no list of modules"),
    ):
        before = files[name].read_text()
        files[name].write_text(json.dumps(content))
        with pytest.raises(InputError, match=match):
            load(tmp_path)
        files[name].write_text(before)
    files["modules.json"].write_text("[")
    with pytest.raises(InputError, match="unreadable"):
        load(tmp_path)
    with pytest.raises(RecipeError, match=r"pooling\.mode = pooled"):
        save(small(mode="pooled"), tmp_path / "no", format="sentence-transformers")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("file", "path", "value"),
    [
        ("modules.json", (0, "path"), 5),
        ("modules.json", (0, "path"), "/etc"),
        ("modules.json", (1, "path"), "../../elsewhere"),
        ("modules.json", (1, "path"), "a\0b"),
        ("modules.json", (1,), "Pooling"),
        ("modules.json", (), {}),
        ("1_Pooling/config.json", (), []),
        ("1_Pooling/config.json", ("pooling_mode",), {"mean": 1}),
        ("1_Pooling/config.json", ("pooling_mode",), [["mean"]]),
        ("sentence_bert_config.json", ("max_seq_length",), "12"),
        ("sentence_bert_config.json", ("max_seq_length",), -1),
        ("sentence_bert_config.json", (), [1]),
        ("config_sentence_transformers.json", ("prompts",), ["query"]),
        ("config_sentence_transformers.json", ("prompts",), {"default": 3}),
        ("config_sentence_transformers.json", ("default_prompt_name",), ["default"]),
    ],
)
def test_files_of_another_shape_are_one_sentence(file: str, path: tuple[str | int, ...], value: object, tmp_path: Path):
    save(small(prompt="query: "), tmp_path / "st", format="sentence-transformers")
    said = tree = json.loads((tmp_path / "st" / file).read_text())
    for name in path[:-1]:
        tree = tree[name]
    if path:
        tree[path[-1]] = value
    (tmp_path / "st" / file).write_text(json.dumps(said if path else value))
    with pytest.raises(InputError, match=file.split("/")[0]):
        load(tmp_path / "st")
