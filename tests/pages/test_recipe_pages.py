"""The recipes' pages are what the recipes say, each has its own, and their commands are ours."""

import json
import re
import shlex
from pathlib import Path

import pytest

import clozeworks as cw
from clozeworks.cli.main import find_command, parser_of
from clozeworks.cli.recipes import family
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.optim.settings import Phase, Train
from clozeworks.recipe import count_parameters
from clozeworks.recipes import named
from docs.tools.laptop import laptop_of, small, stand_in
from docs.tools.recipe_pages import MEASURED, page, pages, schedule, sizes, write

DOCS = Path(__file__).parents[2] / "docs"
MEASUREMENT = {
    "parameters": 5, "steps": 1200, "tokens": 4_000_000, "minutes": 9.5, "accuracy": 0.314, "unigram": 0.051,
    "command": "clozeworks pretrain bert_mini --data data --out run",
}  # fmt: skip


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return pages(json.loads((DOCS / MEASURED).read_text()))


def test_the_pages_are_what_the_recipes_say(written: dict[str, str]):
    wanted = {name: (DOCS / name).read_text(encoding="utf-8") for name in written if (DOCS / name).exists()}
    assert wanted == written, "run `python -m docs.tools.recipe_pages docs`"


def test_no_page_outlives_its_recipe():
    there = {file.stem for file in (DOCS / "recipes").glob("*.md")}
    assert there == set(named())


def test_every_page_has_its_sections_and_the_index_leads_to_it(written: dict[str, str]):
    for name in named():
        text = written[f"recipes/{name}.md"]
        sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert sections[-4:] == ["Parameters", "Training", "On a laptop", "What to expect"]
        assert len(text.split("\n")[2]) > 20, f"{name} says nothing about itself"
        assert f"[{name}](recipes/{name}.md)" in written["recipes.md"]
        assert max(map(len, text.splitlines())) < 1000
        for link in re.findall(r"\]\(([^)#]+\.md)", text):
            path = (DOCS / "recipes" / link).resolve()
            assert path.exists() or link == "../distillation.md", link


def test_printed_commands_are_commands_of_ours(written: dict[str, str]):
    lines = {line for text in written.values() for line in re.findall(r"^clozeworks .*$", text, re.MULTILINE)}
    assert len(lines) > len(named())
    for line in lines:
        words = shlex.split(line)[1:]
        command = find_command(words)
        parser_of(command).read(words[len(command.split()) :])


@pytest.mark.parametrize("name", named())
def test_parts_add_up(name: str):
    recipe = named()[name]()
    *parts, whole = sizes(recipe)
    assert sum(count for *_, count in parts) == whole[-1] == count_parameters(recipe)
    assert "other" not in [part for part, *_ in parts]


def test_a_large_recipe_is_stood_for_by_the_small_one_of_its_family():
    made, kin = {name: function() for name, function in named().items()}, family()
    for name in made:
        assert small(made[stand_in(name, made)]), name
    assert stand_in("bert_tiny", made) == "bert_tiny"
    assert stand_in("bert_base_chinese", made) == "bert_mini"
    assert stand_in("roberta_large", made) == "roberta_mini"
    assert "--tokenizer bytes" in laptop_of("roberta_base", made, kin).commands[0]
    assert "--lang zh" in laptop_of("roberta_wwm_mini", made, kin).commands[0]


def test_settings_in_words():
    train = Train(steps=2000, batch_tokens=512 * 8, warmup=100, phases=(Phase(0.9, 128), Phase(0.1, 512)), clip=None)
    settings = dict(schedule(train, 512))
    assert settings["batch"] == "4,096 tokens, 8 rows of 512"
    assert settings["lengths"] == "90% of the steps with rows of 128, then 10% of the steps with rows of 512"
    assert "warm-up over 100 steps" in settings["learning rate"]
    assert settings["gradient"] == "not clipped"
    assert "warm-up over 5% of the steps" in dict(schedule(Train(), 128))["learning rate"]


def test_what_was_measured_is_reported_and_nothing_else():
    measured = {"bert_mini": {"zh": MEASUREMENT, "en": MEASUREMENT}}
    texts = {name: page(MADE[name], MADE, family(), measured) for name in ("bert_tiny", "bert_mini", "bert_large")}
    for name in ("bert_mini", "bert_large"):
        assert "| en | 1,200 | 4,000,000 | 9.5 | 31.4% | 5.1% |" in texts[name]
    assert "No run of `bert_tiny` has been measured" in texts["bert_tiny"]


def test_writing_deletes_pages_of_recipes_that_are_gone(written: dict[str, str], tmp_path: Path, monkeypatch):
    monkeypatch.setattr("docs.tools.recipe_pages.pages", lambda measured: written)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "gone.md").write_text("x")
    write(tmp_path)
    assert {file.stem for file in (tmp_path / "recipes").glob("*")} == set(named())
    before = {file.name: file.read_bytes() for file in tmp_path.rglob("*.md")}
    write(tmp_path)
    assert before == {file.name: file.read_bytes() for file in tmp_path.rglob("*.md")}


MADE = {name: make() for name, make in named().items()}


@pytest.mark.parametrize("name", sorted({stand_in(name, MADE) for name in MADE if "mini" in stand_in(name, MADE)}))
def test_a_page_exports_what_has_a_class_elsewhere(name: str, tmp_path: Path):
    recipe, commands = named()[name](), "\n".join(laptop_of(name, MADE, family()).commands)
    recipe.encoder.vocab = 100
    if recipe.decoder is not None:
        recipe.decoder.start, recipe.decoder.end = 1, 2
    encoder = TextEncoder(cw.build(recipe), None, recipe)
    if "--to hf" in commands:
        cw.save(encoder, tmp_path / name, format="hf")
        assert (tmp_path / name / "config.json").is_file()
    else:
        with pytest.raises(cw.InputError):
            cw.save(encoder, tmp_path / name, format="hf")
