"""Findings about reading: encodings, damaged bytes, rows, spans, pairs, and what is empty."""

from collections.abc import Iterator

from clozeworks.data.checks.finding import File, Finding, Seen, fine, listed, note, share, wrong
from clozeworks.data.records.encodings import AUTO
from clozeworks.data.records.mixture import DIVIDE
from clozeworks.data.records.wording import pluralize


def about_reading(seen: Seen) -> Iterator[Finding]:
    """What `prepare` would stop at, leave out or change while it reads."""
    yield from _mixed(seen)
    yield from _encodings(seen)
    yield from _damage(seen)
    yield from _rows(seen)
    yield from _spans(seen)
    yield from _words(seen)
    yield from _empty(seen)
    if seen.reading.pairs:
        yield from _pairs(seen)


def _encodings(seen: Seen) -> Iterator[Finding]:
    """Files in another encoding than the one they would be read in."""
    asked = seen.reading.encoding
    if not seen.encodings:
        if seen.files and not seen.damaged and not seen.mixed and seen.counts.documents:
            read = [f"{name} ({pluralize(count, 'file')})" for name, count in sorted(seen.counts.encodings.items())]
            yield fine(f"every byte decodes: {', '.join(read)}")
        return
    files = [file for file in seen.troubled if file.raw.better and not file.raw.mixed]
    total = sum(seen.encodings.values())
    others = [f"{file.name} looks like {file.raw.better}{_begins(file)}" for file in files]
    alone = len(seen.encodings) == 1 and not seen.other
    name = next(iter(seen.encodings)) if alone else AUTO
    mixed = "" if alone else ", and not all files have the same encoding" if seen.files > 1 else ""
    yield wrong(
        f"{pluralize(total, 'file is', 'files are')} not {asked}{mixed}: {listed(others, 5, total)}",
        f"--encoding {name}" if alone else "--encoding auto reads each file in its own",
        {"--encoding": name},
    )


def _mixed(seen: Seen) -> Iterator[Finding]:
    """Files that no encoding reads; a user who has them read all the same hears what is lost."""
    taken = seen.reading.encoding == AUTO and seen.reading.errors == "skip"
    for file in [file for file in seen.troubled if file.raw.mixed][:3]:
        text = f"{file.name}: {file.raw.mixed}"
        yield note(text) if taken else wrong(text, DIVIDE, {"--encoding": AUTO, "--errors": "skip"})
    if seen.mixed > 3:
        yield (note if taken else wrong)(f"{pluralize(seen.mixed - 3, 'other file')} with two encodings")


def _damage(seen: Seen) -> Iterator[Finding]:
    """Bytes that decode in no likely encoding, or only in part."""
    if not seen.damaged:
        return
    files = [file for file in seen.troubled if file.raw.invalid and not file.raw.better and not file.raw.mixed]
    names = listed([f"{file.name}{_places(file)}" for file in files], 5, seen.damaged)
    count, many = pluralize(seen.invalid, "sequence"), pluralize(seen.damaged, "file")
    text = f"{count} of bytes in {many} cannot be decoded: {names}"
    errors = seen.reading.errors
    if errors == "strict":
        todo = "--errors replace puts U+FFFD there, --errors skip leaves out the lines; better mend the file"
        yield wrong(text, todo, {"--errors": "replace"})
    else:
        yield note(f"{text}; " + ("they become U+FFFD" if errors == "replace" else "their lines are left out"))


def _begins(file: File) -> str:
    return f" (line {file.raw.lines[0]:,} does not decode)" if file.raw.lines else ""


def _places(file: File) -> str:
    raw = file.raw
    if not raw.lines:
        return ""
    return f" (line{'s' if len(raw.lines) > 1 else ''} {', '.join(f'{line:,}' for line in raw.lines)}" + (
        " and others)" if raw.invalid > len(raw.lines) else ")"
    )


def _rows(seen: Seen) -> Iterator[Finding]:
    refused = [file.refused for file in seen.troubled if file.refused is not None and not file.raw.mixed]
    for error in refused[:3]:
        errors = next((errors for errors in ("skip", "replace") if f"--errors {errors}" in error.todo), None)
        options = {"--errors": errors} if errors else {}
        yield wrong(f"{error.where}: {error.given}; {error.needed}", error.todo, options)
    if seen.refused > 3:
        others, they = pluralize(seen.refused - 3, "other file"), "it is" if seen.refused == 4 else "they are"
        yield wrong(f"{others} cannot be read as {they} either")
    if seen.reading.errors == "skip" and seen.counts.skipped:
        lost = share(seen.counts.skipped, seen.counts.skipped + seen.counts.documents)
        yield note(
            f"{pluralize(seen.counts.skipped, 'line or row', 'lines or rows')} ({lost}) cannot be read and "
            f"{_are(seen.counts.skipped)} left out"
        )
    elif seen.counts.skipped and not (seen.refused or seen.encodings or seen.damaged or seen.mixed):
        text = f"{pluralize(seen.counts.skipped, 'row')} cannot be read"
        yield wrong(text, _mend(seen.counts.skipped), {"--errors": "skip"})
    elif seen.files and seen.counts.documents and not (seen.refused or seen.encodings or seen.damaged or seen.mixed):
        yield fine(f"every line and row can be read as {pluralize(seen.counts.documents, 'document')}")


def _spans(seen: Seen) -> Iterator[Finding]:
    bad = seen.counts.bad_spans
    if not bad:
        return
    spans = pluralize(bad, "phrase or entity span")
    text = f"{spans} {'does not fit its text' if bad == 1 else 'do not fit their text'}"
    if seen.reading.errors != "strict":
        yield note(f"{text} and {_are(bad)} left out")
    else:
        yield wrong(text, _mend(bad), {"--errors": "skip"})


def _words(seen: Seen) -> Iterator[Finding]:
    bad, cut = seen.counts.bad_words, seen.counts.cut_words
    its = "its" if bad == 1 else "their"
    text = f"{pluralize(bad, 'row has', 'rows have')} words that do not join to {its} text"
    if bad and seen.reading.errors != "strict":
        yield note(f"{text}: the text is read without them")
    elif bad:
        yield wrong(text, "mend them, or --errors replace leaves them out", {"--errors": "replace"})
    if cut:
        text = pluralize(cut, "word lies across the border of two sentences", "words lie across borders of sentences")
        yield note(f"{text} and {_are(cut)} divided there")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _mend(count: int) -> str:
    them = "it" if count == 1 else "them"
    return f"mend {them}, or --errors skip leaves {them} out"


def _empty(seen: Seen) -> Iterator[Finding]:
    for file in [file for file in seen.troubled if file.empty and file.named]:
        given = "an empty file" if file.path.stat().st_size == 0 else "a file without a document"
        yield wrong(f"{file.name}: {given}", "leave it out, or name the directory it is in")
    hidden = seen.counts.empty_files - sum(file.empty and file.named for file in seen.troubled)
    if hidden:
        yield note(f"{pluralize(hidden, 'file is', 'files are')} empty and passed over")
    if not seen.counts.documents and not any(file.empty and file.named for file in seen.troubled):
        yield wrong("no document at all", "point at files with text")
    if seen.counts.empty_rows and not seen.reading.pairs:
        rows = seen.counts.empty_rows
        text = f"{pluralize(rows, 'row has', 'rows have')} no text in {seen.reading.field!r}"
        yield note(f"{text} and {_are(rows)} passed over")
    if links := seen.counts.dangling_links:
        yield note(f"{pluralize(links, 'link leads', 'links lead')} nowhere and {_are(links)} passed over")
    if others := seen.counts.other_files:
        text = pluralize(others, "other file is of a kind that is", "other files are of kinds that are")
        yield note(f"{text} not read, and passed over")


def _pairs(seen: Seen) -> Iterator[Finding]:
    sides, rows = seen.survey.sides, seen.survey.sides.ratios.count
    if not rows:
        return
    empty, absurd = seen.counts.empty_rows, sides.absurd()
    if empty:
        yield note(
            f"{pluralize(empty, 'pair has', 'pairs have')} an empty side and {_are(empty)} left out "
            f"({share(empty, empty + rows)})"
        )
    usual = sides.ratios.quantile(0.5) / 1000
    if absurd:
        have = "has" if absurd == 1 else "have"
        text = f"{pluralize(absurd, 'pair')} ({share(absurd, rows)}) {have} sides that differ in length"
        yield note(f"{text} five times more than usual", "look at them: such pairs are often not translations")
    if 20 * sides.same > rows:
        yield note(f"{share(sides.same, rows)} of the pairs have the same text on both sides", "leave them out")
    if not empty and not absurd:
        yield fine(f"both sides of all pairs are filled, the first {usual:.2f} times as long as the second")
