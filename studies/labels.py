"""How many labels an own encoder saves: `python -m studies.labels --folder DATA --out DIR`.

Each set is a folder with train.jsonl and dev.jsonl (text, label); `areas` and `reviews` are embedded. For every number
of labels and every seed the same drawn rows teach each arm, all of them and to the last step; others measure it:

    tfidf_words, tfidf_characters   n-grams with logistic regression, C by cross-validation on the rows
    fresh                           the own encoder's recipe from random weights, three times the epochs
    counted                         the encoder before any masked training: its table of words is counted in the text
    own                             the encoder after so many CPU minutes of masked training on that text
    self_trained                    the same, with rows of the set that have no labels (`finetune --unlabelled`)
    existing                        an encoder of others (--existing DIR)
    adapted                         the same after continued pretraining on the set's texts
    distilled                       the own encoder, taught by that one, in as many CPU minutes

The text is that of the set without its labels, and the Wikipedia of its language from `--folder`, where there is one.
Finished results are kept in DIR/results.jsonl and not made again: the same command resumes.
"""

import itertools
import json
import random
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozeworks import corpus
from clozeworks.core import atomic_io
from clozeworks.core.characters import is_han
from clozeworks.core.errors import InputError
from clozeworks.corpus import areas
from clozeworks.data.text.documents import Document
from clozeworks.plots import charts
from studies.study import Study, finetune, mean_difference, mean_interval, pretrain, read_numbers

SETS, SIZES = "areas,sst2,chnsenticorp,book_review", "100,300,1000,5000"
COUNTED = ("tfidf_words", "tfidf_characters")
OWN = (*COUNTED, "fresh", "counted", "own", "self_trained")
ARMS = (*OWN, "existing", "adapted", "distilled")  # those behind OWN need an encoder of others
NAMES = {
    "tfidf_words": "TF-IDF, words",
    "tfidf_characters": "TF-IDF, characters",
    "fresh": "random weights",
    "counted": "counted table alone",
    "own": "own encoder",
    "self_trained": "own, self-trained",
    "existing": "existing encoder",
    "adapted": "existing, domain text",
    "distilled": "own, distilled",
}  # in the picture
BESIDE = 0.03  # of a number of labels, between one arm and the next in the picture
EMBEDDED = {"areas": "en", "reviews": "zh"}  # the tasks of the quickstart
MEASURED = 1000  # rows at most that measure
VOCAB = 8192
TOKENIZERS = {"en": "wordpiece", "zh": "unigram"}  # whose tokens are words, or parts of words: characters say little
LENGTH = 128
DONE = "DONE"  # in a run that has ended
UNLABELLED = 3000  # rows at most that have no labels
ADAPTED = 300  # steps of continued pretraining
EXAMPLE = "python -m studies.labels --folder data --out labels --sets sst2 --sizes 100,300 --seeds 0,1 --budget 2m"

Rows = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """Rows to learn from, others to measure on, and the text that an encoder may read without labels."""

    name: str
    lang: str
    train: Rows
    test: Rows
    text: list[Document]

    def drawn(self, size: int, seed: int) -> Rows:
        """So many rows, as many of each label as in all, the same for the same seed; fewer where there are no more."""
        by_label: dict[str, Rows] = defaultdict(list)
        for row in random.Random(f"{self.name} {seed}").sample(self.train, len(self.train)):
            by_label[row["label"]].append(row)
        size, total = min(size, len(self.train)), len(self.train)
        rows = [row for each in by_label.values() for row in each[: max(1, round(size * len(each) / total))]]
        return random.Random(seed).sample(rows, len(rows))


def read_set(name: str, folder: Path | None) -> LabelledSet:
    """Every text once, and none of the rows that measure among those to learn from."""
    if name in EMBEDDED:
        lang = EMBEDDED[name]
        rows = areas.rows(lang)
        text = itertools.islice(corpus.documents(lang), 0, None, 3 if lang == "zh" else 1)  # as the quickstart has it
        return LabelledSet(name, lang, rows[MEASURED:], rows[:MEASURED], list(text))
    if folder is None or not (folder / name / "train.jsonl").is_file() or not (folder / name / "dev.jsonl").is_file():
        needed = f"a folder {name} with train.jsonl and dev.jsonl is needed"
        raise InputError("--folder", folder or "nothing", needed, "give --folder, or --sets areas")
    train, dev = (_read_rows(folder / name / file) for file in ("train.jsonl", "dev.jsonl"))
    test = random.Random(0).sample(dev, min(MEASURED, len(dev)))
    measured = {row["text"] for row in dev}
    train = list({row["text"]: row for row in train if row["text"] not in measured}.values())
    letters = "".join(row["text"] for row in train[:200])
    lang = "zh" if 2 * sum(map(is_han, letters)) > len(letters) else "en"
    wiki = folder / f"{lang}_wiki" / "train.jsonl"
    articles = [line["text"] for line in _read_lines(wiki)] if wiki.is_file() else []
    text = [Document(each) for each in [*(row["text"] for row in train), *articles]]
    return LabelledSet(name, lang, train, test, text)


def _read_rows(file: Path) -> Rows:
    return [{"text": line["text"], "label": str(line["label"])} for line in _read_lines(file)]


def _read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


# ---- encoders


def make_encoder(
    of: LabelledSet,
    out: Path,
    name: str,
    tokenizer: str,
    vocab: int,
    budget: str,
    steps: int,
    teacher: Any = None,
) -> Path:
    """The run of the set's own encoder: so much CPU time, or so many steps; one that is there is taken as it is.

    With a teacher it learns from that one, too.
    """
    import clozeworks
    from clozeworks.recipes.cloze import distil
    from clozeworks.train.resources.budget import fit_to_budget

    data, run = out / of.name / "text", out / of.name / ("own" if teacher is None else "distilled")
    if not (data / "manifest.json").is_file():
        tokenizer = tokenizer or TOKENIZERS[of.lang]
        clozeworks.prepare(of.text, data, tokenizer=tokenizer, vocab=vocab, lang=of.lang, heldout=0.02)
    if not (run / DONE).is_file():
        recipe = clozeworks.recipe(name) if teacher is None else distil(clozeworks.recipe(name))
        if steps:
            recipe.train.steps = steps
        else:
            recipe, _ = fit_to_budget(recipe, [(data, 1.0)], budget, run, "cpu", teacher)
        pretrain(recipe, data, run, teacher=teacher)
        atomic_io.write_bytes(run / DONE, b"")
    return run


def adapt_encoder(of: LabelledSet, out: Path, existing: str) -> Path:
    """The run of an existing encoder whose pretraining continues with the set's texts; one that is there is taken."""
    import clozeworks
    from clozeworks.train.finetune.continue_pretraining import make_recipe

    encoder, data, run = clozeworks.load(existing), out / of.name / "existing-text", out / of.name / "adapted"
    if not (data / "manifest.json").is_file():
        clozeworks.prepare([{"text": row["text"]} for row in of.train], data, tokenizer=existing, lang=of.lang)
    if not (run / DONE).is_file():
        pretrain(make_recipe(encoder.recipe, ADAPTED), data, run, source=encoder.model)
        atomic_io.write_bytes(run / DONE, b"")
    return run


def begin_encoder(run: Path, data: Path) -> Any:
    """The encoder of a run as it was before its first step."""
    import clozeworks
    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.recipe import begin

    encoder = clozeworks.load(run)
    model = clozeworks.build(encoder.recipe)
    begin(encoder.recipe, model, [(Corpus.open(data, "train"), 1.0)])
    encoder.model.load_state_dict(model.state_dict())
    return encoder


# ---- arms


def predict_tfidf(unit: str, rows: Rows, of: LabelledSet, scratch: Path) -> list[str]:
    from clozeworks.evaluate import baselines

    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    answers = baselines.predict_tfidf(unit, texts, labels, [row["text"] for row in of.test])
    return answers or [labels[0]] * len(of.test)


def predict_finetuned(encoder: Any, rows: Rows, of: LabelledSet, scratch: Path, **how: Any) -> list[str]:
    """All rows, the last step; what fine-tuning suggests for everything else."""
    done = finetune("classify", encoder, rows, None, out=scratch, dev_share=0, max_length=LENGTH, **how)
    return [answer["label"] for answer in done.model.predict([row["text"] for row in of.test])]


def predict_fresh(encoder: Any, rows: Rows, of: LabelledSet, scratch: Path) -> list[str]:
    return predict_finetuned(encoder, rows, of, scratch, from_scratch=True)


def predict_self_trained(encoder: Any, rows: Rows, of: LabelledSet, scratch: Path) -> list[str]:
    """The same with others of the rows to learn from, without their labels."""
    known = {row["text"] for row in rows}
    others = [{"text": row["text"]} for row in of.train if row["text"] not in known]
    others = random.Random(len(rows)).sample(others, min(UNLABELLED, len(others)))
    return predict_finetuned(encoder, rows, of, scratch, **({"unlabelled": others} if others else {}))


Arm = Callable[[Rows, LabelledSet, Path], list[str]]


def make_arms(
    of: LabelledSet, out: Path, names: Sequence[str], existing: str, **encoder_of: Any
) -> Iterator[tuple[str, Arm]]:
    """Each arm with its name; encoders are made when they are asked for."""
    import clozeworks

    for name in names:
        if name in COUNTED:
            unit = name.removeprefix("tfidf_")
            yield name, lambda rows, of, scratch, unit=unit: predict_tfidf(unit, rows, of, scratch)
            continue
        if name in ("existing", "adapted"):
            encoder = clozeworks.load(existing if name == "existing" else adapt_encoder(of, out, existing))
        elif name == "distilled":
            encoder = clozeworks.load(make_encoder(of, out, **encoder_of, teacher=clozeworks.load(existing)))
        else:
            run = make_encoder(of, out, **encoder_of)
            encoder = begin_encoder(run, out / of.name / "text") if name == "counted" else clozeworks.load(run)
        predict = {"self_trained": predict_self_trained, "fresh": predict_fresh}.get(name, predict_finetuned)
        yield (
            name,
            lambda rows, of, scratch, encoder=encoder, predict=predict: predict(encoder, rows, of, scratch),
        )


def run(
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    folder: str = "",
    out: str = "",
    sets: str = SETS,
    sizes: str = SIZES,
    arms: str = "",
    recipe: str = "cloze_mini",
    tokenizer: str = "",
    vocab: str = str(VOCAB),
    budget: str = "10m",
    encoder_steps: str = "0",
    existing: str = "",
) -> dict[str, Any]:
    """Accuracy on the same other rows by set, number of labels and arm, a list over the seeds."""
    place = Path(out)
    place.mkdir(parents=True, exist_ok=True)
    names = [name.strip() for name in arms.split(",")] if arms else [a for a in ARMS if existing or a in OWN]
    for name in names:
        if name not in ARMS or (name not in OWN and not existing):
            raise InputError("--arms", name, f"some of {', '.join(ARMS)} are needed", "the last three need --existing")
    how = {
        "name": recipe,
        "tokenizer": tokenizer,
        "vocab": read_numbers("--vocab", vocab, 1)[0],
        "budget": budget,
        "steps": read_numbers("--encoder-steps", encoder_steps)[0],
    }
    kept = place / "results.jsonl"
    results = [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []
    known = {(r["set"], r["arm"], r["labels"], r["seed"]) for r in results}
    for of in (read_set(name.strip(), Path(folder) if folder else None) for name in sets.split(",")):
        wanted = [(n, s) for n in read_numbers("--sizes", sizes, 2) for s in seeds]
        missing = [name for name in names if any((of.name, name, n, s) not in known for n, s in wanted)]
        for name, arm in make_arms(of, place, missing, existing, **how):
            for size, seed in wanted:
                if (of.name, name, size, seed) not in known:
                    results.append(measure(of, name, arm, size, seed, place / "scratch"))
                    atomic_io.write_bytes(kept, "".join(json.dumps(r) + "\n" for r in results).encode())
    return summarize([r for r in results if r["arm"] in names and r["seed"] in seeds])


def measure(of: LabelledSet, name: str, arm: Arm, size: int, seed: int, scratch: Path) -> dict[str, Any]:
    """One result, with the cost of fine-tuning and which rows were right."""
    shutil.rmtree(scratch, ignore_errors=True)
    clock = time.process_time()
    rows = of.drawn(size, seed)
    answers = arm(rows, of, scratch)
    right = [int(answer == row["label"]) for answer, row in zip(answers, of.test, strict=True)]
    shutil.rmtree(scratch, ignore_errors=True)
    return {
        "set": of.name,
        "arm": name,
        "labels": size,
        "seed": seed,
        "learned": len(rows),
        "accuracy": round(sum(right) / len(right), 4),
        "cpu_seconds": round(time.process_time() - clock, 1),
        "right": "".join(map(str, right)),
    }


def summarize(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means with intervals, and the own encoder against the better TF-IDF and the counted table, seed by seed."""
    scores: dict[str, dict[int, dict[str, dict[int, float]]]] = {}
    for r in results:
        scores.setdefault(r["set"], {}).setdefault(r["labels"], {}).setdefault(r["arm"], {})[r["seed"]] = r["accuracy"]
    summary: dict[str, Any] = {"mean": {}, "own_above": {}, "scores": {}}
    for name, by_size in scores.items():
        for size, by_arm in sorted(by_size.items()):
            summary["scores"].setdefault(name, {})[size] = {arm: list(each.values()) for arm, each in by_arm.items()}
            means = {arm: mean_interval(list(each.values())) for arm, each in by_arm.items()}
            summary["mean"].setdefault(name, {})[size] = means
            rivals = [
                max((arm for arm in COUNTED if arm in means), key=lambda arm: means[arm][0], default=""),
                "counted",
            ]
            for rival in (rival for rival in rivals if rival in by_arm and "own" in by_arm):
                both = sorted(by_arm["own"].keys() & by_arm[rival].keys())
                own, other = ([by_arm[arm][seed] for seed in both] for arm in ("own", rival))
                summary["own_above"].setdefault(name, {}).setdefault(size, {})[rival] = mean_difference(own, other)
    return summary


def draw(results: Mapping[str, Any], path: str) -> None:
    """A panel a set: accuracy by number of labels, a line an arm with its interval."""
    panels = results["mean"]
    figure = charts.new_figure(3.6 * max(len(panels), 2), 4.2, "Accuracy by number of labels")
    for number, (name, by_size) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), number)
        arms = list(dict.fromkeys(arm for means in by_size.values() for arm in means))
        for index, arm in enumerate(arms):
            aside = 1 + BESIDE * (index - (len(arms) - 1) / 2)  # so that intervals do not hide one another
            points = [(size * aside, *means[arm]) for size, means in by_size.items() if arm in means]
            sizes, means, halves = zip(*points, strict=True)
            style = charts.line_style(index, NAMES[arm])
            axes.errorbar(sizes, means, [half or 0.0 for half in halves], capsize=2, **style)
        axes.set_xscale("log")
        axes.set_xticks(list(by_size), [f"{size:,}" for size in by_size])
        axes.minorticks_off()
        axes.set_title(name, loc="left", fontsize=10)
        axes.set_xlabel("labels")
        charts.finish(axes, legend=number == 1)
    charts.write(figure, path)


STUDY = Study(
    name="labels",
    about="An own encoder against TF-IDF, its counted table and an existing encoder, by number of labels.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    options={
        "--folder": {"default": "", "metavar": "DIR", "help": "sets, and en_wiki or zh_wiki beside them"},
        "--out": {"required": True, "metavar": "DIR", "help": "encoders and results; the same command resumes"},
        "--sets": {"default": SETS, "help": f"folders, or areas ({SETS})"},
        "--sizes": {"default": SIZES, "help": f"numbers of labels ({SIZES})"},
        "--arms": {"default": "", "help": f"some of {', '.join(ARMS)} (all that can be had)"},
        "--recipe": {"default": "cloze_mini", "help": "of the own encoder (cloze_mini)"},
        "--tokenizer": {"default": "", "help": "of its text, as of prepare (wordpiece; Chinese: unigram)"},
        "--vocab": {"default": str(VOCAB), "help": f"tokens of its tokenizer ({VOCAB})"},
        "--budget": {"default": "10m", "help": "CPU time of the own encoder (10m)"},
        "--encoder-steps": {"default": "0", "help": "steps of the own encoder instead of a budget"},
        "--existing": {"default": "", "metavar": "DIR", "help": "an encoder of others"},
    },
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
