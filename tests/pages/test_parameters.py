"""Every published count, in both accountings, and the page that shows them."""

import functools
from pathlib import Path

import pytest

import clozeworks as cw
from docs.tools.parameters import SHARING, TABLES, VOCAB, Row, page

PAGE = Path(__file__).parents[2] / "docs" / "parameters.md"
ROWS = [row for table in TABLES for row in table.rows]
COUNT = functools.cache(Row.count)
# Millions: P = E and P = H with the pooler, then without.
BOTH_WAYS = {
    (768, 12, 64, "all"): (9.681, 10.045, 9.091, 9.454),
    (768, 12, 64, "none"): (87.648, 88.011, 87.057, 87.421),
    (768, 12, 128, "all"): (11.684, 12.014, 11.093, 11.423),
    (768, 12, 128, "attention"): (63.647, 63.977, 63.057, 63.387),
    (768, 12, 128, "ffn"): (37.687, 38.017, 37.096, 37.426),
    (768, 12, 128, "none"): (89.650, 89.980, 89.060, 89.390),
    (768, 12, 256, "all"): (15.688, 15.952, 15.097, 15.362),
    (768, 12, 256, "none"): (93.655, 93.919, 93.064, 93.328),
    (768, 12, 768, "all"): (31.115, 31.115, 30.524, 30.524),
    (768, 12, 768, "attention"): (83.078, 83.078, 82.488, 82.488),
    (768, 12, 768, "ffn"): (57.118, 57.118, 56.527, 56.527),
    (768, 12, 768, "none"): (109.081, 109.081, 108.491, 108.491),
    (1024, 1, 128, "all"): (17.684, 18.146, 16.634, 17.097),
    (1024, 48, 128, "all"): (17.684, 18.146, 16.634, 17.097),
    (2048, 3, 128, "all"): (58.725, 59.716, None, None),
    (4096, 3, 128, "all"): (222.596, 224.643, None, None),
    (6144, 3, 128, "all"): (495.518, 498.622, None, None),
    (1024, 24, 1024, "none"): (334.607, 334.607, 333.558, 333.558),
}


@pytest.fixture(autouse=True)
def _each_count_once(monkeypatch):
    """A count builds a model; several tests ask for the same ones."""
    monkeypatch.setattr(Row, "count", COUNT)


def by_formula(row: Row, narrow: str, pooler: bool) -> int:
    """The same count from shapes alone."""
    width, embed = row.width, row.embed
    attention, ffn = 4 * (width**2 + width) + 2 * width, 8 * width**2 + 5 * width + 2 * width
    layers = [row.depth if sets is None else sets for sets in SHARING[row.sharing]]
    tables = VOCAB * embed + (512 + 2 + 2) * (embed if narrow == "all" else width)
    projection = embed * width + width if embed != width else 0
    return tables + projection + layers[0] * attention + layers[1] * ffn + pooler * (width**2 + width)


def test_there_are_as_many_rows_as_published():
    assert [len(table.rows) for table in TABLES] == [8, 8, 6, 4, 2]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_rule_gives_the_published_figure(row):
    assert row.millions(row.by_rule()) == row.published


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_parts_add_up_to_the_formula(row):
    for narrow in ("all", "words"):
        for pooler in (True, False):
            assert row.count(narrow, pooler) == by_formula(row, narrow, pooler)


@pytest.mark.parametrize("shape", BOTH_WAYS, ids=str)
def test_both_accountings(shape):
    row = next(row for row in ROWS if (row.width, row.depth, row.embed, row.sharing) == shape)
    columns = [("all", True), ("words", True), ("all", False), ("words", False)]
    for (narrow, pooler), wanted in zip(columns, BOTH_WAYS[shape], strict=True):
        if wanted is not None:
            assert row.count(narrow, pooler) / 1e6 == pytest.approx(wanted, abs=5.1e-4)


def test_no_other_accounting_gives_every_figure():
    for narrow in ("all", "words"):
        for pooler in (True, False):
            assert any(row.millions(row.count(narrow, pooler)) != row.published for row in ROWS)


def test_the_largest_is_the_published_one_to_three_digits():
    largest = ROWS[-1]
    assert (largest.width, largest.published) == (2048, 1270)
    assert largest.by_rule() == pytest.approx(1271.10e6, abs=5e3)


def test_the_factor_that_is_reported():
    """30,000 x 100 + 100 x 768 instead of 30,000 x 768: 86.6 % less."""
    r = cw.recipe("albert_base")
    r.encoder.embed.width = 100
    narrow = cw.count_parameters(r, heads=False)
    r.encoder.embed.width = None
    whole = cw.count_parameters(r, heads=False)
    saved = (30_000 * 768 - 30_000 * 100 - 100 * 768) + 516 * (768 - 100) - 768
    assert whole - narrow == saved
    share = (30_000 * 100 + 100 * 768) / (30_000 * 768)
    assert share == pytest.approx(1 - 0.8665, abs=1e-4)


def test_the_page_is_what_is_printed():
    wanted = PAGE.read_text(encoding="utf-8")
    assert page() == wanted, "run `python -m docs.tools.parameters > docs/parameters.md`"
