"""The one way in: a model, steps or a target, data, and a directory for the smaller model."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clozeworks.compress.chain import Result, Row, State, Workshop, apply_chain, mark_pareto
from clozeworks.compress.division import divide
from clozeworks.compress.step import Step, parse_steps
from clozeworks.compress.target import Search, Target, parse_target
from clozeworks.compress.training.rival import check_losses, check_rival, measure_rivals
from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.core.spec import Spec
from clozeworks.inference.text_encoder import TextEncoder, load
from clozeworks.plots import tradeoff

StrPath = str | os.PathLike[str]
WORK = ".work"  # of the directory that is being written: models on the way


def compress(
    model: TextEncoder | StrPath,
    steps: str | Sequence[Step] | None = None,
    *,
    data: Any,
    out: StrPath,
    target: str | Target | None = None,
    columns: Mapping[str, str] | None = None,
    plot: StrPath | None = None,
    rival: bool = False,
    seed: int = 0,
    parts: Sequence[type[Spec]] = (),
    tell: Callable[[str], object] = lambda text: None,
    tell_row: Callable[[Row], object] = lambda row: None,
) -> Result:
    """Apply steps (`heads=0.3,ffn=0.5,vocab`) in their order, or search for those that reach a `target`
    (`size=10MB,quality=0.97`), and write the smaller model with its report, `compress.json`.

    `data` is a file of labelled rows that a fine-tuned model was not trained on; of texts, or a prepared directory, for
    other models. Steps read one part of it, are chosen on a second and reported on a third. With `rival` two models of
    the same recipe are trained beside it for as many steps as `distil` took, one from fresh weights and one from those
    that cutting left, neither with the original as its teacher: what compression and teaching gave. `tell` hears what
    is going on, `tell_row` every row as soon as it is measured.
    """
    if (steps is None) == (target is None):
        given = "neither steps nor a target" if steps is None else "both steps and a target"
        raise InputError("compress", given, "one of them is needed", "for example: --apply heads=0.3,ffn=0.5")
    chain = parse_steps(steps) if isinstance(steps, str) else steps
    aim = parse_target(target) if isinstance(target, str) else target
    if rival:
        check_rival(chain)
    if plot is not None:
        tradeoff.check_ending(plot)
    with atomic_io.directory(out) as folder:  # which refuses one with content before anything is computed
        encoder = model if isinstance(model, TextEncoder) else load(model, parts)
        if rival:
            check_losses(encoder.recipe)
        division = divide(encoder, data, columns, choosing=aim is not None, seed=seed)
        shop = Workshop(folder / WORK, encoder, division, parts=parts, seed=seed, tell=tell, tell_row=tell_row)
        if aim is not None:
            result, state = _search(shop, aim, Path(out))
        else:
            assert chain is not None
            rows, states = apply_chain(shop, chain)
            state, rivals = states[-1], measure_rivals(shop, chain, states) if rival else []
            result = Result(Path(out), rows, rivals=rivals)
        result.notes = [*division.notes, *result.notes]
        about = {"model": encoder.recipe.name, "data": str(data) if isinstance(data, str | os.PathLike) else None}
        shop.publish(state, result, {**about, "target": target if isinstance(target, str) else None})
    if plot is not None:
        tradeoff.draw([row.as_json() for row in result.tried or result.rows], plot, encoder.recipe.name)
    return result


def _search(shop: Workshop, target: Target, out: Path) -> tuple[Result, State]:
    """The chain that the search found, reported on the part that it never saw."""
    search = Search(shop, target)
    state, path, reached = search.run()
    rows = [shop.measure(each, "report") for each in path]
    mark_pareto(rows)
    last = rows[-1].measured
    missed = target.shortfall(last)
    result = Result(out, rows, search.tried, not missed and len(path) > 1, target.describe(last), search.notes)
    if len(path) == 1:
        result.reason = "no step pays without losing more of the quality than is allowed"
    elif missed and reached:
        result.reason += "; on the part to choose by it was reached"
    return result, state
