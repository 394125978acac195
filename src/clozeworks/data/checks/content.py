"""Findings about the text itself: characters, copies, layout, sentences, and what is no prose."""

import shlex
import unicodedata
from collections.abc import Iterator

from clozeworks.data.checks.finding import Finding, Seen, fine, listed, note, share
from clozeworks.data.checks.survey import LINE, RUN, Survey, characters
from clozeworks.data.records.wording import pluralize
from clozeworks.data.text.sentences import LONGEST


def about_content(seen: Seen) -> Iterator[Finding]:
    """What the characters, copies, lines and sentences of the text show."""
    yield from _strange(seen)
    yield from _damaged(seen)
    yield from _forms(seen)
    yield from _scripts(seen)
    yield from _copies(seen)
    if seen.reading.pairs is None:
        yield from _layout(seen)
        yield from _sentences(seen)
        yield from _boilerplate(seen)
    yield from _prose(seen)


def _strange(seen: Seen) -> Iterator[Finding]:
    counts = seen.survey.counts
    nul = seen.counts.nul
    if nul:
        yield note(f"{pluralize(nul, 'NUL character')} will be removed")
    controls = {c: n for c, n in characters(counts) if _is_control(c)}
    if controls:
        ordered = sorted(controls, key=lambda c: -controls[c])
        most = listed([f"U+{ord(c):04X} {controls[c]:,}" for c in ordered], 4)
        yield note(f"{pluralize(sum(controls.values()), 'control character')}: {most}", "clean the text")
    if not nul and not controls:
        yield fine("no NUL and no other control character")


def _damaged(seen: Seen) -> Iterator[Finding]:
    survey = seen.survey
    lost = int(survey.counts[0xFFFD])
    if lost:
        text = f"{lost:,} U+FFFD in the text: it was damaged before, and those characters are gone"
        yield note(text, "go back to the original, if there is one")
    misread = survey.misread()
    if survey.mojibake >= 3 or misread * 50 > max(1, survey.han()):
        signs = pluralize(max(survey.mojibake, misread), "sign")
        text = f"{signs} of text that was once read in the wrong encoding (Ã©, â€™, 锟斤拷, 锛, ÖÐ¹ú)"
        yield note(text, "go back to the original, or mend it (the package ftfy does)")
    elif not lost:
        yield fine("no sign of text that was read in a wrong encoding before")


def _forms(seen: Seen) -> Iterator[Finding]:
    survey, sample = seen.survey, seen.survey.sample
    changed = sample.denormal
    if changed and seen.reading.unicode == "none":
        text = f"{share(changed, sample.documents)} of the documents{_sampled(seen)} are not in Unicode's form NFC"
        yield note(f"{text}: one word may have two spellings", "--unicode nfc", {"--unicode": "nfc"})
    elif not changed:
        yield fine("the characters are in Unicode's form NFC")
    wide = sum(n for c, n in characters(survey.counts) if c.isalnum() and unicodedata.normalize("NFKC", c) != c)
    if 1000 * wide > survey.characters and seen.reading.unicode != "nfkc":
        text = (
            f"{share(wide, survey.characters)} of the characters are full-width or otherwise styled letters and digits"
        )
        yield note(text, "--unicode nfkc would make them plain ones, and Chinese punctuation too")


def marks(survey: Survey) -> dict[str, int]:
    """Characters that are worth a count of their own."""
    kinds = {
        "control": _is_control,
        "right_to_left": lambda c: unicodedata.bidirectional(c) in ("R", "AL"),
        "emoji": lambda c: "\U0001f300" <= c <= "\U0001faff" or "\u2600" <= c <= "\u27bf",
        "combining": unicodedata.combining,
        "replacement": lambda c: c == "\ufffd",
    }
    return {name: sum(n for c, n in characters(survey.counts) if belongs(c)) for name, belongs in kinds.items()}


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc" and character not in "\t\n\r"


def _scripts(seen: Seen) -> Iterator[Finding]:
    survey = seen.survey
    counts = marks(survey)
    kinds = {"right_to_left": "written from right to left", "emoji": "emoji or signs", "combining": "combining marks"}
    for name, what in kinds.items():
        if 1000 * counts[name] > survey.characters:
            yield fine(f"{share(counts[name], survey.characters)} of the characters are {what}: they are kept")
    if survey.runs:
        text = f"{pluralize(survey.runs, 'run')} of more than {RUN} combining marks on one letter"
        yield note(f"{text}, the longest of {survey.longest_run:,} or more: no language has them", "clean the text")


def _copies(seen: Seen) -> Iterator[Finding]:
    copies = seen.survey.copies
    part = copies.share()
    how = "" if copies.every == 1 else f" (counted among one in {copies.every:,} texts)"
    if part:
        text = f"{share(part, 1)} of the documents are exact copies of others{how}"
        if seen.aim.dedupe:
            yield fine(f"{text}; --dedupe leaves them out")
        else:
            yield note(text, "--dedupe leaves them out", {"--dedupe": ""})
    elif seen.survey.documents > 1:
        yield fine(f"no document is an exact copy of another{how}")


def _layout(seen: Seen) -> Iterator[Finding]:
    layouts = seen.plain
    lines = [layout for layout in layouts if layout.one_a_line]
    if lines:
        names = listed([layout.name for layout in lines])
        many = sum(layout.lines for layout in lines)
        text = f"{names}: {many:,} lines, each like a text of its own, without blank lines"
        first = lines[0].name
        todo = "if a line is a document, put blank lines between"
        if first.endswith(".txt"):
            target = first.removesuffix(".txt") + ".documents.txt"
            todo += f": sed G {shlex.quote(first)} > {shlex.quote(target)}"
        fused = pluralize(sum(layout.documents for layout in lines), "document")
        yield note(f"{text}: they would become {fused}", todo)
    wrapped = [layout for layout in layouts if layout.wrapped]
    if wrapped and not seen.reading.unwrap:
        widest = max(layout.width for layout in wrapped)
        names = listed([layout.name for layout in wrapped])
        text = f"{names}: lines are broken inside sentences, at about {widest} characters; a line break ends a sentence"
        yield note(text, "--unwrap", {"--unwrap": ""})
    elif seen.reading.unwrap and layouts and not wrapped:
        yield note(
            "the lines do not look broken at a column, so --unwrap joins what may be paragraphs", "leave out --unwrap"
        )
    fused = [layout for layout in layouts if layout.fused and layout not in lines]
    if fused:
        names, most = listed([layout.name for layout in fused]), max(layout.characters for layout in fused)
        yield note(
            f"{names}: one document of {most:,} characters",
            "put a blank line where one document ends and the next begins",
        )
    if seen.survey.documents == 1 and seen.aim.heldout:
        yield note("one document only, so nothing can be held out for evaluation", "put blank lines between documents")


def _sentences(seen: Seen) -> Iterator[Finding]:
    sample = seen.survey.sample
    if sample.whole and 5 * sample.lone > sample.whole:
        text = f"{share(sample.lone, sample.whole)} of the documents{_sampled(seen)} have one sentence only"
        todo = "choose a recipe without sentence pairs, such as roberta_mini, or join what belongs together"
        yield note(f"{text}: there is no next sentence to predict", todo)
    elif sample.whole:
        yield fine(f"documents have several sentences ({sample.sentences / max(1, sample.documents):.0f} on average)")
    if sample.cut:
        text = f"{pluralize(sample.cut, 'stretch', 'stretches')} of {LONGEST:,} characters or more{_sampled(seen)}"
        yield note(f"{text} without the end of a sentence: cut there, nothing is lost", "is this prose?")
    elif sample.longest > 5_000:
        yield note(
            f"the longest sentence{_sampled(seen)} has {sample.longest:,} characters", "is it a table or a list?"
        )


def _boilerplate(seen: Seen) -> Iterator[Finding]:
    survey = seen.survey
    if survey.documents < 20:
        return
    lines = survey.repeated.most_frequent(max(10, survey.documents // 50))
    part = sum(len(line) * count for line, count in lines)
    if 200 * part > survey.characters:
        most = listed([f"{line[:50]!r} {count:,} times" for line, count in lines], 2)
        come = "comes" if len(lines) == 1 else "come"
        text = f"{pluralize(len(lines), 'line')} of {LINE[0]} characters or more {come} again in many documents"
        yield note(f"{text}, {share(part, survey.characters)} of the text: {most}", "remove what is no content")
    else:
        yield fine("no line comes again in many documents")


def _prose(seen: Seen) -> Iterator[Finding]:
    sample = seen.survey.sample
    whole = max(1, sample.characters)
    if 100 * sample.markup > whole:
        text = (
            f"{share(sample.markup, whole)} of the characters{_sampled(seen)} are markup (tags, entities, wiki marks)"
        )
        yield note(text, "extract the text first")
    if 100 * sample.coded > whole:
        text = f"{share(sample.coded, whole)} of the characters{_sampled(seen)} stand in long runs, such as base64"
        yield note(text, "leave them out")
    if 20 * sample.numbers > sample.documents:
        text = f"{share(sample.numbers, sample.documents)} of the documents{_sampled(seen)} are mostly digits"
        yield note(text, "leave out tables of numbers")


def _sampled(seen: Seen) -> str:
    return "" if seen.survey.sample.share >= 1 else " in a sample"
