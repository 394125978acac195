"""A look at a corpus before anything is prepared: what will go wrong, what to do about it, and what is fine.

Nothing is written. Every file is read to its end whatever is wrong with it: bytes that do not decode are counted and
named, a file in another encoding is read in the one it seems to have, and what `prepare` would stop at is quoted.
Memory is bounded: see `checks/survey.py`. Dear questions are asked of a sample (`checks/sample.py`).
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.data.checks.content import about_content, marks
from clozeworks.data.checks.finding import Aim, File, Finding, Seen
from clozeworks.data.checks.layout import Layout
from clozeworks.data.checks.needs import MEMORY, about_needs, language, seconds, tokens
from clozeworks.data.checks.raw import Raw, look
from clozeworks.data.checks.reading import about_reading
from clozeworks.data.checks.sample import CHARACTERS, SEGMENTED, Sample
from clozeworks.data.checks.survey import Survey
from clozeworks.data.records.compressed import packing_of_name
from clozeworks.data.records.lines import explain_read_errors
from clozeworks.data.records.listing import ARROW, TEXT, Passed, kind_of, list_files
from clozeworks.data.records.signatures import refuse_other
from clozeworks.data.text.files import INPUT, keep_input
from clozeworks.data.text.reader import Reader, Reading

__all__ = ["Finding", "Report", "check"]

KEPT_FILES = 50  # of those with something to report
TRIALS = 10  # files that are read again to hear what `prepare` would say
UNPACKED = 4  # how much larger than stored a compressed file is, more or less
SUMMED = ["documents", "skipped", "empty_rows", "empty_files", "bad_spans", "bad_words", "cut_words", "long_documents"]
ORDER = {"wrong": 0, "note": 1, "fine": 2}

Progress = Callable[[int, int], None]  # bytes looked at, bytes in all (each is looked at twice)


@dataclass(slots=True)
class Report:
    """The findings, the gravest first, and the facts about the corpus."""

    findings: list[Finding]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def wrong(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == "wrong"]

    def options(self) -> dict[str, str]:
        """What the findings recommend for the command line; the gravest has the last word."""
        chosen: dict[str, str] = {}
        for finding in reversed(self.findings):
            for name, value in finding.options.items():
                if chosen.get(name) != "skip":  # it mends all that `replace` mends, and more
                    chosen[name] = value
        return chosen


def check(
    source: Any,
    reading: Reading,
    *,
    aim: Aim = Aim(),  # noqa: B008
    progress: Progress = lambda done, total: None,
) -> Report:
    """Look at text files, directories, globs, standard input or an iterable, as `prepare` would read them.

    `aim` says what is to be made of the text.
    """
    if isinstance(source, str | os.PathLike):
        source = [source]
    with tempfile.TemporaryDirectory(prefix="clozeworks-") as place:
        if isinstance(source, list | tuple) and all(isinstance(item, str | os.PathLike) for item in source):
            seen = _look_at_files(list(source), reading, aim, Path(place), progress)
        else:
            seen = _look_at_items(source, reading, aim, Path(place), progress)
    seen.survey.finish()
    findings = [*about_reading(seen), *(about_content(seen) if seen.survey.documents else ()), *about_needs(seen)]
    return Report(sorted(findings, key=lambda finding: ORDER[finding.kind]), _facts(seen))


def _look_at_files(given: list[Any], reading: Reading, aim: Aim, place: Path, progress: Progress) -> Seen:
    names: dict[Path, str] = {}
    if INPUT in given:
        kept = _keep(place)
        names[kept] = "standard input"
        given = [kept if path == INPUT else path for path in given]
    passed = Passed()
    files = list_files(given, passed)
    sizes = [file.stat().st_size for file in files]
    unpacked = sum(size * (UNPACKED if packing_of_name(file) else 1) for file, size in zip(files, sizes, strict=True))
    named = {Path(path).resolve() for path in given}
    seen = _start(reading, aim, unpacked)
    seen.files, seen.bytes = len(files), sum(sizes)
    seen.counts.dangling_links = len(passed.dangling)
    seen.counts.other_files = len(passed.others - set(files))
    done = 0
    for path, size in zip(files, sizes, strict=True):
        file = File(path, names.get(path, str(path)), path.resolve() in named, Raw())
        _look_at_file(file, seen, lambda read, done=done: progress(2 * done + read, 2 * seen.bytes), size)
        _remember(file, seen)
        done += size
    return seen


def _look_at_items(source: Any, reading: Reading, aim: Aim, place: Path, progress: Progress) -> Seen:
    reader = Reader(source, replace(reading, errors="skip", unicode="none"), place / "documents")
    seen = _start(reading, aim, reader.total)
    file = File(Path(reader.name), reader.name, False, Raw())
    seen.bytes = reader.total
    try:
        for document in reader.documents(seen.counts):
            seen.survey.add(document)
            progress(seen.counts.bytes, reader.total)
    except InputError as error:
        file.refused = error
    met = seen.counts.skipped or seen.counts.bad_spans or seen.counts.bad_words
    if reading.errors != "skip" and met and file.refused is None:
        again = reader.identity() is not None or iter(source) is not source
        file.refused = _refusal(source, reading) if again else None
    if file.refused is not None:
        seen.troubled.append(file)
        seen.refused = 1
    return seen


def _start(reading: Reading, aim: Aim, characters: int) -> Seen:
    kept = SEGMENTED if ":" in (aim.segmenter or "") else 0
    sample = Sample(min(1.0, CHARACTERS / max(1, characters)), aim.tokenizer, kept=kept)
    return Seen(reading, aim, Survey(sample, reading.pairs is not None))


def _look_at_file(file: File, seen: Seen, progress: Callable[[int], None], size: int) -> None:
    """First its bytes, then its documents; what `prepare` would say, where it would stop."""
    kind, reading = kind_of(file.path), seen.reading
    try:
        with explain_read_errors(file.name):
            _read_file(file, kind, seen, progress, size)
    except InputError as error:
        file.empty = file.counts.empty_files > 0
        file.refused = None if file.empty else error
    met = file.counts.skipped or file.counts.bad_spans or file.counts.bad_words or file.raw.nul
    if met and file.refused is None and reading.errors != "skip" and seen.refused < TRIALS:
        damaged = file.raw.invalid and not file.raw.better
        again = replace(
            reading, errors="replace" if damaged else reading.errors, encoding=file.raw.better or reading.encoding
        )
        file.refused = _refusal([file.path], again)
    if file.refused is not None:
        file.refused.where = file.refused.where.replace(str(file.path), file.name)


def _read_file(file: File, kind: str, seen: Seen, progress: Callable[[int], None], size: int) -> None:
    if kind not in ARROW and size:
        packing = packing_of_name(file.path)
        refuse_other(file.path, file.name, packing)
        file.raw = look(file.path, packing, seen.reading.encoding, progress)
    encoding = file.raw.better or file.raw.encoding
    tolerant = replace(seen.reading, errors="skip", unicode="none", unwrap=False, encoding=encoding)
    if kind in TEXT:
        file.layout = Layout(file.name)
    for document in Reader([file.path], tolerant).documents(file.counts):
        seen.survey.add(document)
        if file.layout is not None:
            file.layout.add(document.text, document.part == 0)
        progress(size + min(size, file.counts.bytes))


def _refusal(source: Any, reading: Reading) -> InputError | None:
    """What reading it as it was asked for stops at."""
    with tempfile.TemporaryDirectory(prefix="clozeworks-") as place:
        try:
            for _ in Reader(source, reading, Path(place, "documents")).documents():
                pass
        except InputError as error:
            return error
    return None


def _remember(file: File, seen: Seen) -> None:
    """Add what one file shows to what all of them show."""
    total, own, raw = seen.counts, file.counts, file.raw
    for name in SUMMED:
        setattr(total, name, getattr(total, name) + getattr(own, name))
    total.nul += own.nul if raw.better else max(own.nul, raw.nul)
    total.encodings.update(own.encodings)
    if raw.mixed:
        seen.mixed += 1
    elif raw.better:
        seen.encodings[raw.better] += 1
    elif raw.invalid:
        seen.invalid += raw.invalid
        seen.damaged += 1
    elif not raw.ascii:
        seen.other += 1
    seen.refused += file.refused is not None
    troubled = raw.mixed or raw.better or raw.invalid or file.refused is not None or (file.empty and file.named)
    if troubled and len(seen.troubled) < KEPT_FILES:
        seen.troubled.append(file)
    layout = file.layout
    if layout is not None and (layout.wrapped or layout.fused or layout.one_a_line or not seen.plain):
        seen.plain = [*seen.plain, layout][:KEPT_FILES]


def _facts(seen: Seen) -> dict[str, Any]:
    survey, sample = seen.survey, seen.survey.sample
    han, whole = survey.han(), max(1, sample.characters)
    quantiles = {f"{part:.0%}": survey.lengths.quantile(part) for part in (0.05, 0.25, 0.5, 0.75, 0.95)}
    return {
        "files": seen.files,
        "bytes": seen.bytes,
        "documents": survey.documents,
        "characters": survey.characters,
        "sentences": round(sample.sentences * survey.characters / whole),
        "tokens": tokens(seen),
        "language": seen.aim.lang or language(seen),
        "chinese_share": round(han / max(1, survey.characters), 4),
        "different_characters": int((survey.counts > 0).sum()),
        "marks": marks(survey),
        "document_characters": quantiles | {"most": survey.lengths.most},
        "copies_share": round(survey.copies.share(), 4),
        "sampled_characters": sample.characters,
        "seconds": round(seconds(seen), 1),
        "memory_bytes": MEMORY,
    }


def _keep(place: Path) -> Path:
    """Standard input as a file whose name says its format."""
    spool, kind, packing = keep_input(place / "input")
    return spool.rename(place / f"input{kind}{packing}")
