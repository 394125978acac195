"""Plots are written whole, show what the rows say, and never an empty box."""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text

from clozeworks.core.errors import InputError
from clozeworks.plots import charts
from studies import figures

ROWS = [{"step": step, "loss": 3 + 5 * math.exp(-step / 30) + 0.3 * (-1) ** step} for step in range(1, 101)]
HELDOUT = [{"step": step, "loss": 3 + 5 * math.exp(-step / 30), "split": "heldout"} for step in (0, 50, 100)]
TITLES = [
    "bert_mini",
    "预训练：人民日报 1998 年 1 月",
    r"costs $\five and $6",
    "Grüße 🎉 𓀀",
    "两行\n标题",
    "\ud800",
    "",
]


@pytest.fixture
def fonts() -> Iterator[None]:
    """Forget afterwards which fonts a test made plot.py see."""
    yield
    charts.chinese_font.cache_clear()
    charts._coverage.cache_clear()


@pytest.fixture
def no_chinese_font(fonts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "CHINESE_FONTS", ())
    charts.chinese_font.cache_clear()
    charts._coverage.cache_clear()


def texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]


def boxes(figure: Figure) -> str:
    """Characters of the figure for which none of its fonts has a glyph, asked of the font files themselves."""
    missing = ""
    for text in texts(figure):
        files = [
            font_manager.findfont(font_manager.FontProperties(family=[name]), fallback_to_default=False)
            for name in text.get_fontfamily()
            if name != "sans-serif"
        ] or [font_manager.findfont("sans-serif")]
        results = [font_manager.get_font(file) for file in files]
        missing += "".join(
            character
            for character in text.get_text()
            if character != "\n" and not any(font.get_char_index(ord(character)) for font in results)
        )
    return missing


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf", ".PNG"])
def test_writes_the_format_of_the_ending_and_the_same_file_each_time(tmp_path: Path, ending: str):
    path = tmp_path / "deep" / f"loss{ending}"
    charts.loss_curve(ROWS + HELDOUT, path, title="bert_mini", baseline=6.4)
    content = path.read_bytes()
    assert content[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    charts.loss_curve(ROWS + HELDOUT, path, title="bert_mini", baseline=6.4)
    assert path.read_bytes() == content


def test_another_ending_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"'\.gif'.*use \.png, \.svg, \.pdf"):
        charts.loss_curve(ROWS, tmp_path / "loss.gif")


def test_lines_are_the_rows():
    figure = charts.draw_loss(ROWS + HELDOUT, None, 6.4, "en")
    raw, smooth, heldout, baseline = figure.axes[0].get_lines()
    np.testing.assert_array_equal(raw.get_ydata(), [row["loss"] for row in ROWS])
    np.testing.assert_array_equal(heldout.get_xdata(), [0, 50, 100])
    np.testing.assert_array_equal(baseline.get_ydata(), [6.4, 6.4])
    np.testing.assert_array_equal(smooth.get_ydata(), charts.smooth([row["loss"] for row in ROWS]))


def test_rows_of_a_broken_run_still_make_a_plot(tmp_path: Path):
    broken = [*ROWS, {"step": 101, "loss": math.nan}, {"step": 102, "loss": None}, {"step": 103}]
    raw, _ = charts.draw_loss(broken, None, math.inf, "en").axes[0].get_lines()
    np.testing.assert_array_equal(raw.get_xdata(), range(1, 101))
    charts.loss_curve(HELDOUT, tmp_path / "only-heldout.png")
    charts.loss_curve(ROWS[:1], tmp_path / "one-step.png")


@pytest.mark.parametrize("rows", [[], [{"step": 1, "loss": math.nan}], [{"step": 1, "split": "heldout"}]])
def test_rows_without_a_loss_are_refused(tmp_path: Path, rows: list[dict[str, float]]):
    with pytest.raises(InputError, match="no finite loss"):
        charts.loss_curve(rows, tmp_path / "loss.png")
    assert not list(tmp_path.iterdir())


def test_smoothing_follows_a_line_and_takes_noise_away():
    line = [float(value) for value in range(200)]
    assert charts.smooth(line)[:-5] == pytest.approx(line[:-5])
    noise = [(-1.0) ** step for step in range(200)]
    assert max(map(abs, charts.smooth(noise)[5:])) < 0.2
    assert charts.smooth([2.0]) == [2.0]


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_boxes_with_a_chinese_font(tmp_path: Path, title: str, lang: str):
    if not charts.chinese_font():
        pytest.skip("no Chinese font: pip install 'clozeworks[zh]'")
    figure = charts.draw_loss(ROWS + HELDOUT, title, 6.4, lang)
    assert boxes(figure) == ""
    charts.loss_curve(ROWS + HELDOUT, tmp_path / "loss.png", title, 6.4, lang)  # a missing glyph would warn, so fail
    shown = [text.get_text() for text in texts(figure)]
    assert ("留出文本" in shown) == (lang == "zh")
    if title.startswith("预训练"):
        assert title in shown


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.usefixtures("no_chinese_font")
def test_no_boxes_without_a_chinese_font(tmp_path: Path, title: str):
    figure = charts.draw_loss(ROWS + HELDOUT, title, 6.4, "zh")
    assert boxes(figure) == ""
    charts.loss_curve(ROWS + HELDOUT, tmp_path / "loss.png", title, 6.4, "zh")
    shown = [text.get_text() for text in texts(figure)]
    assert "held-out text" in shown
    assert ("Pretraining" in shown) == any("一" <= character <= "龥" or character == "𓀀" for character in title)


def test_a_symbol_goes_alone_and_a_letter_takes_the_title_with_it():
    assert charts.without_boxes("Grüße \U0001fae0!", "instead") == "Grüße !"
    assert charts.without_boxes("Grüße 𓀀", "instead") == "instead"
    assert charts.without_boxes("\u202eab\u2066c\x1b[2J", "instead") == "abc[2J"


def test_a_font_installed_after_matplotlib_made_its_list_is_found(tmp_path: Path):
    files = [entry.fname for entry in font_manager.fontManager.ttflist if entry.name == charts.chinese_font()]
    if not files:
        pytest.skip("no Chinese font: pip install 'clozeworks[zh]'")
    environment = os.environ | {"XDG_DATA_HOME": str(tmp_path), "MPLCONFIGDIR": str(tmp_path / "config")}
    code = "import sys; from clozeworks.plots import charts; charts._register_extra_font = lambda: None; "
    code += "print(charts.chinese_font())"

    def font_seen() -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()

    before = font_seen()
    (tmp_path / "fonts").mkdir()
    shutil.copy(files[0], tmp_path / "fonts")
    assert before in ("None", charts.chinese_font())  # a system may have one already
    assert font_seen() == charts.chinese_font()


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys; from clozeworks.plots import charts; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- bars and layers


BARS = {
    "trained on a": {"asked a": [1.0, 0.9], "asked b": [0.5, 0.4]},
    "trained on b": {"asked a": [0.7], "asked b": [1.0]},
}
LINES = {"distance": {"_run": [1.0, 2.0, 3.0], "costs $5_$6": [2.0, 2.0]}, "cosine": {"_run": [0.5, 0.6, 0.7]}}


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_the_same_figures_give_the_same_file(ending: str, tmp_path: Path):
    for name in ("one", "two"):
        figures.grouped_bars(BARS, tmp_path / f"bars-{name}.{ending}", "Bars", "accuracy", 0.5, "a coin")
        charts.layer_lines(LINES, tmp_path / f"lines-{name}.{ending}", "Layers", "layer")
    for kind in ("bars", "lines"):
        first, second = (tmp_path / f"{kind}-{name}.{ending}" for name in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()


def test_names_stand_in_the_legend_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    drawn: list[Figure] = []
    monkeypatch.setattr(charts, "write", lambda figure, path: drawn.append(figure))
    charts.layer_lines(LINES, tmp_path / "x.svg", "Layers", "layer")
    figures.grouped_bars(BARS, tmp_path / "x.svg", "Bars", "accuracy", 0.5, "a coin")
    drawn_texts = [{text.get_text() for text in texts(figure)} for figure in drawn]
    assert {"./_run", "costs $5_$6", "distance", "cosine", "layer"} <= drawn_texts[0]
    assert {"asked a", "asked b", "a coin", "0.95", "0.45", "trained on a"} <= drawn_texts[1]


def test_an_ending_that_is_no_format_is_refused_before_anything_is_drawn(tmp_path: Path):
    with pytest.raises(InputError, match="the ending chooses the format"):
        charts.check_ending(tmp_path / "x.gif")
