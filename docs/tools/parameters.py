"""Published parameter counts beside those of the recipes: `python -m docs.tools.parameters`.

Prints docs/parameters.md. Every row is a recipe with some fields changed, built on the meta device and counted.
"""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from clozeworks.core.spec import set_path

VOCAB = 30_000
SHARING = {"all": (1, 1), "attention": (1, None), "ffn": (None, 1), "none": (None, None)}
Narrow = Literal["all", "words"]
COLUMNS: tuple[tuple[Narrow, bool], ...] = (("all", True), ("words", True), ("all", False), ("words", False))


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure, in millions, and the recipe that it is the count of."""

    published: int
    recipe: str
    width: int = 768
    depth: int = 12
    embed: int = 128
    sharing: str = "all"
    digits: int | None = None  # significant ones, where the figure was rounded to fewer than millions

    def settings(self) -> dict[str, str]:
        """Fields to change, as `--set` takes them."""
        attention, ffn = SHARING[self.sharing]
        return {
            "encoder.vocab": str(VOCAB),
            "encoder.width": str(self.width),
            "encoder.embed.width": str(self.embed),
            "encoder.stack.depth": str(self.depth),
            "encoder.stack.block.mixer.heads": str(self.width // 64),
            "encoder.stack.block.ffn.inner": str(4 * self.width),
            "encoder.stack.share.attention": str(attention),
            "encoder.stack.share.ffn": str(ffn),
        }

    def count(self, narrow: Narrow, pooler: bool) -> int:
        """Parameters of the encoder; nothing is allocated."""
        import clozeworks  # a name leads to its recipe through the public interface alone

        r = clozeworks.recipe(self.recipe)
        for path, value in self.settings().items():
            set_path(r, path, value)
        r.encoder.embed.narrow = narrow
        if not pooler:
            r.encoder.pooler, r.objective.losses = None, ()
        return clozeworks.count_parameters(r, heads=False)

    def by_rule(self) -> int:
        """As the published tables must have been counted: the page says how that is known."""
        return self.count("words", pooler=self.sharing != "none")

    def millions(self, count: int) -> int:
        """A count as the table would print it."""
        whole = round(count / 1e6)
        return whole if self.digits is None else round(whole, self.digits - len(str(whole)))

    @property
    def cells(self) -> tuple[str, ...]:
        return f"{self.depth}", f"{self.width:,}", f"{self.embed:,}", self.sharing


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    source: str
    rows: tuple[Row, ...]


TABLES = (
    Table(
        "Width of the word table",
        "table 3",
        tuple(
            Row(published, "albert_base", embed=embed, sharing=sharing)
            for sharing, column in (("none", (87, 89, 93, 108)), ("all", (10, 12, 16, 31)))
            for embed, published in zip((64, 128, 256, 768), column, strict=True)
        ),
    ),
    Table(
        "What is shared",
        "table 4",
        tuple(
            Row(published, "albert_base", embed=embed, sharing=sharing)
            for embed, column in ((768, (31, 83, 57, 108)), (128, (12, 64, 38, 89)))
            for sharing, published in zip(SHARING, column, strict=True)
        ),
    ),
    Table("Depth", "A.1", tuple(Row(18, "albert_large", width=1024, depth=depth) for depth in (1, 3, 6, 12, 24, 48))),
    Table(
        "Width",
        "A.1",
        tuple(
            Row(published, "albert_large", width=width, depth=3)
            for width, published in ((1024, 18), (2048, 60), (4096, 225), (6144, 499))
        ),
    ),
    Table(
        "Without sharing or a narrow table",
        "table 1",
        (
            Row(334, "bert_large", width=1024, depth=24, embed=1024, sharing="none"),
            Row(1270, "bert_large", width=2048, depth=24, embed=2048, sharing="none", digits=3),
        ),
    ),
)
CLASSES = ("albert_base", "albert_large", "albert_xlarge", "albert_xxlarge")


def page() -> str:
    return "\n".join(line for part in (_opening, _rule, _tables, _classes) for line in part()) + "\n"


def _opening() -> Iterator[str]:
    yield from ["# Parameters", ""]
    yield from _paragraph(
        "The parameter counts that Lan et al. 2019 publish, in millions, beside those of recipes with the same shape. "
        "Every row is built from parts on the meta device and counted; nothing is computed from a formula."
    )
    yield from ["```text", "python3 -m docs.tools.parameters", "```", ""]
    yield from _paragraph("prints this page, and a test holds it so. One row of your own:")
    yield from ["```bash", "clozeworks show albert_base --set encoder.embed.width=64", "```", ""]


def _rule() -> Iterator[str]:
    yield from ["## What is counted", ""]
    yield from _paragraph(
        f"The vocabulary has {VOCAB:,} words, heads have 64 units, the feed-forward part is four times as wide as the "
        "model. Two things are open, and each has its column: whether positions, segments and the norm behind them are "
        "as narrow as the words (`encoder.embed.narrow` = all, P = E: the released code and its directories) or as "
        "wide as the model (words, P = H), and whether the pooler is counted. Where E = H there is no projection."
    )
    yield from _paragraph(
        "One rule gives every published figure: P = H; models that share something with the pooler, models that "
        "share nothing without it. That is the column *by the rule*, exact; it is printed as the table prints it, "
        "rounded to the million, and the last model to three digits. Nothing else fits: at widths of 2,048 and more "
        "P = E is millions short, and with the pooler every model that shares nothing is a million or more too large."
    )


def _tables() -> Iterator[str]:
    headings = ("layers", "H", "E", "shared", "published", "by the rule")
    names = [f"{'E' if narrow == 'all' else 'H'}{', pooler' if pooler else ''}" for narrow, pooler in COLUMNS]
    for table in TABLES:
        yield from [f"## {table.title} ({table.source})", ""]
        rows = []
        for row in table.rows:
            others = (f"{row.count(narrow, pooler) / 1e6:,.3f}" for narrow, pooler in COLUMNS)
            rows.append((*row.cells, f"{row.published:,}", f"{row.by_rule():,}", *others))
        yield from _lined((*headings, *(f"P = {name}" for name in names)), rows, words=(3,))


def _classes() -> Iterator[str]:
    import clozeworks

    yield from ["## The recipes", ""]
    yield from _paragraph(
        "The recipes are the released models, P = E. *Encoder* is the published class with its pooler, *pretrained* "
        "has the heads of both losses."
    )
    rows = []
    for name in CLASSES:
        encoder = clozeworks.count_parameters(name, heads=False)
        rows.append((f"`{name}`", f"{encoder:,}", f"{clozeworks.count_parameters(name):,}"))
    yield from _lined(("recipe", "encoder", "pretrained"), rows, words=(0,))
    yield from _paragraph(
        f"`transformer_xl_base` has {clozeworks.count_parameters('transformer_xl_base'):,}, which is what the "
        "published code counts with the options of its run_wt103_base.sh. Elsewhere one reads 151,106,305: that is the "
        "same code without `--adaptive`, one softmax over all words instead of one with an entry for each of three "
        "more clusters, 3 x (410 + 1) numbers."
    )


def _paragraph(text: str) -> list[str]:
    return [*textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False), ""]


def _lined(headings: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int]) -> list[str]:
    """A table in Markdown, numbers to the right."""
    rule = ["---" if column in words else "---:" for column in range(len(headings))]
    return [f"| {' | '.join(row)} |" for row in (headings, rule, *rows)] + [""]


if __name__ == "__main__":
    sys.stdout.write(page())
