"""The page that `scale` prints: tables of a plan in Markdown, and what follows from them."""

import math
import textwrap
from collections.abc import Iterator, Sequence

from studies.scale.estimate import LENGTH
from studies.scale.growth import SCHEDULES, Layout, Plan, Run, Schedule
from studies.scale.traffic import DAY, HOUR


def page(plan: Plan) -> str:
    parts = (_opening, _arithmetic, _assumptions, _memory, _steps, _text, _reading, _saving, _findings)
    return "\n".join(line for part in parts for line in part(plan)) + "\n"


def _opening(plan: Plan) -> Iterator[str]:
    yield "# Scale"
    yield ""
    numbers = _listed([f"{gpus}" for gpus in _numbers(plan)])
    yield from _paragraph(
        f"What {numbers} GPUs would need to pretrain `{plan.name}` on {plan.cluster.text.size / 1e9:g} GB of text, on "
        "paper. **Nothing on this page was run on a GPU.** Bytes and FLOPs are what the library itself estimates for "
        "any recipe before it trains (`clozeworks pretrain --dry-run`): the recipe is run on the meta device, where "
        "shapes flow and nothing is computed, and tests hold that estimate against real processes on a CPU. Times "
        "follow from the assumptions below, and are as good as those."
    )
    yield from ["```text", "python3 -m studies.scale", "```", ""]
    yield from _paragraph(
        "prints this page, and a test holds it so. `--gpus 16,128`, `--recipe NAME` and `--set gpu.memory=40e9` ask "
        "for others, `--json` gives every result in bytes and seconds. GB are 10^9 bytes."
    )


def _arithmetic(plan: Plan) -> Iterator[str]:
    model, micro = plan.model, plan.cluster.work.micro
    yield from ["## What is counted", ""]
    again = model.layers / (3 * model.forward)
    yield from _table(
        ("", "", ""),
        [
            ("parameters", f"{model.parameters:,}", f"in {model.tensors} tensors, heads included, tied ones once"),
            ("in the layers", f"{model.blocks:,}", f"{model.depth} layers of width {model.width}"),
            ("FLOPs a token", f"{model.forward:,.0f}", f"forward, rows of {LENGTH}; training takes three times that"),
            ("both passes", _gb(model.passes.at(micro)), f"at their worst moment, for {micro} x {LENGTH} tokens"),
            ("a row more", _gb(model.passes.at(micro + 1) - model.passes.at(micro), 3), "measured up to twice as many"),
            (
                "recomputed",
                _gb(model.recomputed.at(micro)),
                f"instead, if each layer keeps its input alone; {again:.0%} more arithmetic",
            ),
            ("a checkpoint", _gb(_runs(plan)[0][1].saving.size), f"weights and {model.moments} moments, in fp32"),
        ],
        numbers=(1,),
    )
    yield from _paragraph(
        "The passes are estimated in fp32, so the memory below is an upper bound: autocast to bf16 keeps less. An "
        "earlier version of this page counted by formulas for plain encoders in bf16, which gave about two thirds of "
        "these bytes. FLOPs are by each part's definition, the last layer in full, where training continues only with "
        "the tokens that a loss reads."
    )


def _assumptions(plan: Plan) -> Iterator[str]:
    yield from ["## What is assumed", ""]
    rows = [
        (f"`{path}`", _plain(value), plan.cluster.about(path)) for path, value in plan.cluster.assumptions().items()
    ]
    yield from _table(("parameter", "value", ""), rows, numbers=(1,))
    yield from _paragraph(
        "The text's numbers were measured: `prepare` with the published vocabulary of 30,522 WordPieces on 14.1 MB of "
        "encyclopedia articles and books. Machines are of the kind with eight 80 GB GPUs and one 400 Gb/s adapter for "
        "each. Collectives run in two rings, inside the node and between nodes; trees would have fewer hops. The share "
        "of the peak is taken to be the same whatever the rows at once; with one or two it would be lower."
    )


def _memory(plan: Plan) -> Iterator[str]:
    work = plan.cluster.work
    yield from ["## Memory of a rank", ""]
    yield from _paragraph(
        f"GB for {work.micro} rows at once{', layers recomputed' if work.recompute else ''}. *Whole*: every rank holds "
        "the model (DDP). *Sharded*: weights, gradients and moments are divided (FSDP2, a layer a unit). All at "
        "the worst moment of a step; *gathered* are bf16 weights and fp32 gradients of the layers at hand, *passes* "
        "what both passes hold. "
        "The last columns are the rows that fit beside the reserve."
    )
    rows = []
    for layout in plan.layouts:
        held = layout.memory
        sizes = (held.weights, held.gradients, held.moments, held.gathered, held.passes, held.total)
        rows.append(
            (
                *_name(layout),
                *(f"{size / 1e9:.2f}" for size in sizes),
                _rows(layout.rows),
                _rows(layout.rows_recomputed),
            )
        )
    headings = ("GPUs", "", "weights", "gradients", "moments", "gathered", "passes", "all")
    yield from _table((*headings, "rows that fit", "recomputed"), rows, numbers=(0, *range(2, 10)))


def _steps(plan: Plan) -> Iterator[str]:
    yield from ["## Steps", ""]
    yield from _paragraph(
        "*Sent* is what each rank sends in a step: 2(n-1)/n of the fp32 gradients where the model is whole; sharded, "
        "(n-1)/n of the bf16 weights twice and of the fp32 gradients, for every micro-batch. *Exposed* is the "
        "communication that arithmetic cannot hide. *Full* is the share of the places in all ranks' batches that hold "
        "a row. Every step is counted at full length; of the first schedule nine tenths were published with rows of "
        "128."
    )
    for schedule in SCHEDULES:
        yield from [f"### {schedule.steps:,} steps of {schedule.rows:,} x {LENGTH} tokens ({schedule.name})", ""]
        rows = []
        for layout, run in _runs(plan, schedule):
            one = run.step
            times = (f"{1e3 * value:,.1f}" for value in (one.compute, one.talk, one.exposed, one.apart, one.together))
            daily = f"{one.tokens_a_second * DAY / 1e9:,.1f}"
            rows.append((
                *_name(layout), f"{one.rows}", f"{one.pieces}", f"{one.busy:.0%}", f"{one.sent / 1e9:,.2f}",
                *times, daily, f"{run.seconds / DAY:,.2f}",
            ))  # fmt: skip
        headings = ("GPUs", "", "rows a rank", "micro-batches", "full", "sent, GB", "compute, ms", "communication, ms")
        headings += ("exposed, ms", "step, no overlap, ms", "step, ms", "billion tokens a day", "days")
        yield from _table(headings, rows, numbers=(0, *range(2, 13)))


def _text(plan: Plan) -> Iterator[str]:
    shards, text = plan.shards, plan.cluster.text
    yield from ["## Text", ""]
    epochs = _listed([f"{each.tokens / shards.tokens:.1f} for {each.name}'s schedule" for each in SCHEDULES])
    yield from _table(
        ("", "", ""),
        [
            ("tokens", f"{shards.tokens / 1e9:.1f} billion", f"epochs: {epochs}"),
            ("shards", f"{shards.files:,}", f"of {text.shard:,} tokens, {_gb(shards.file)} each"),
            ("in all", _gb(shards.size), f"{shards.size / shards.tokens:.2f} bytes a token: id, word start, borders"),
            ("borders", _gb(shards.borders), "of host memory in every process, 8 bytes a sentence and a document"),
            (
                "planning",
                _gb(shards.plan),
                "of host memory more in every process, for a while, at the start of an epoch",
            ),
        ],
        numbers=(1,),
    )


def _reading(plan: Plan) -> Iterator[str]:
    yield from ["## Reading", ""]
    yield from _paragraph(
        "A row is a run of tokens at a random place, read in whole pages. *Copy* is the time until every node has all "
        "shards on its own disk, which then has to give the share in the last column. Layout of the shorter step."
    )
    rows = []
    for gpus in _numbers(plan):
        for schedule in SCHEDULES:
            runs = [run for layout, run in _runs(plan, schedule) if layout.gpus == gpus]
            facts = min(runs, key=lambda run: run.step.together).reading
            rates = (f"{value / 1e6:,.2f}" for value in (facts.useful, facts.node))
            rows.append((f"{gpus}", schedule.name, *rates, _time(facts.copy), f"{facts.disk:.2%}"))
    headings = ("GPUs", "schedule", "tokens, MB a second", "pages of a node, MB a second", "copy", "of its disk")
    yield from _table(headings, rows, numbers=(0, 2, 3, 4, 5))


def _saving(plan: Plan) -> Iterator[str]:
    yield from ["## Checkpoints and failures", ""]
    yield from _paragraph(
        "One failed GPU stops all. A save pauses training while it is written and hashed, by one process where the "
        "model is whole, by all where it is sharded; a restart is noticed, launched, read and verified. Best interval: "
        "Young's sqrt(2 x pause x time between failures), and Daly's, which is used. *Wasted* is the share of the time "
        "that saves, work done twice and restarts take."
    )
    for schedule in SCHEDULES:
        rows = []
        for layout, run in _runs(plan, schedule):
            facts = run.saving
            steps = "" if math.isinf(facts.daly) else f"{facts.daly / run.step.together:,.0f}"
            times = (facts.pause, facts.restart, facts.between, facts.young, facts.daly)
            waste = (f"{facts.failures:.3f}", _time(facts.lost), f"{facts.wasted:.3%}")
            rows.append((*_name(layout), *map(_time, times), steps, *waste, f"{run.with_failures / DAY:,.2f}"))
        headings = (
            "GPUs",
            "",
            "pause",
            "restart",
            "between failures",
            "Young",
            "Daly",
            "in steps",
            "failures in the run",
        )
        yield from [f"### {schedule.name}'s schedule", ""]
        yield from _table((*headings, "lost work", "wasted", "days"), rows, numbers=(0, *range(2, 12)))


def _findings(plan: Plan) -> Iterator[str]:
    """Sentences that hold for these results, whatever was set."""
    cluster, shards, lines = plan.cluster, plan.shards, []
    room = cluster.gpu.memory * (1 - cluster.gpu.reserve)
    small = [layout for layout in plan.layouts if layout.memory.total > room]
    if small:
        what = _listed([f"{layout.gpus} GPUs {_name(layout)[1]}" for layout in small])
        lines.append(f"{cluster.work.micro} rows at once do not fit: {what}.")
    else:
        lines.append(f"{cluster.work.micro} rows at once fit in every layout; sharding is not needed for memory.")
    for gpus in _numbers(plan):
        for schedule in SCHEDULES:
            runs = {layout.sharded: run for layout, run in _runs(plan, schedule) if layout.gpus == gpus}
            whole, sharded = runs[False].step, runs[True].step
            here = f"{gpus} GPUs with {schedule.rows:,} rows a step"
            if whole.busy < 1:
                lines.append(f"{here} leave {1 - whole.busy:.0%} of their places empty: they are too many.")
            if whole.exposed > 0.2 * whole.together:
                waits = [f"{each.exposed / each.together:.0%}" for each in (whole, sharded)]
                lines.append(
                    f"{here} wait for the network {waits[0]} of the time, sharded {waits[1]}: a rank has too few rows "
                    "to hide it."
                )
    each = shards.borders + shards.plan
    lines.append(
        f"A process takes up to {_gb(each)} of host memory for borders and the plan of an epoch, a node of "
        f"{cluster.node.gpus} processes {_gb(cluster.node.gpus * each)}. That grows with the text, not with the model: "
        "text of this size has to be planned in parts, or once a node."
    )
    yield from ["## What follows", ""]
    for line in lines:
        yield from textwrap.wrap(f"- {line}", 120, subsequent_indent="  ", break_on_hyphens=False)


def _numbers(plan: Plan) -> list[int]:
    return list(dict.fromkeys(layout.gpus for layout in plan.layouts))


def _runs(plan: Plan, schedule: Schedule = SCHEDULES[0]) -> list[tuple[Layout, Run]]:
    return [(layout, run) for layout in plan.layouts for run in layout.runs if run.schedule == schedule]


def _name(layout: Layout) -> tuple[str, str]:
    return f"{layout.gpus}", "sharded" if layout.sharded else "whole"


def _rows(count: int) -> str:
    return f"{count}" if count else "none"


def _gb(size: float, digits: int = 2) -> str:
    return f"{size / 1e9:,.{digits}f} GB"


def _time(seconds: float) -> str:
    if math.isinf(seconds):
        return "never"
    for unit, name in ((DAY, "d"), (HOUR, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:.1f} s"


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}".replace("e+", "e")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _paragraph(text: str) -> list[str]:
    return [*textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False), ""]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> list[str]:
    rule = ["---:" if column in numbers else "---" for column in range(len(headings))]
    return [f"| {' | '.join(row)} |" for row in (headings, rule, *rows)] + [""]
