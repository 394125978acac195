"""Findings about the aim: language and words, the vocabulary, the length of examples, room, time and memory."""

import importlib.util
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from clozeworks.core.characters import is_han
from clozeworks.core.errors import InputError
from clozeworks.data.checks.finding import Finding, Seen, fine, note, share, wrong
from clozeworks.data.checks.survey import characters
from clozeworks.data.records.wording import pluralize
from clozeworks.data.tokens.segmenters import Problems, start_segmentation
from clozeworks.data.tokens.training import ALPHABET_SHARE, KINDS, LARGEST, SMALLEST, places_of

LETTERS = 4.4  # characters a token where there are spaces; a Chinese character is a token
ENOUGH = 60  # characters a piece of the vocabulary
TOKEN_BYTES = 12  # on disk while preparing: shards, and the units that they are merged from
SECONDS = {"en": 0.8e-6, "zh": 8e-6}  # a character, on one core: reading twice, a tokenizer, tokens, words
MEMORY = 600_000_000  # bytes: units in flight, the words of a tokenizer in training


def language(seen: Seen) -> str:
    """As `prepare` guesses it: from the first letters."""
    return "zh" if 3 * seen.survey.head_han > seen.survey.head_letters else "en"


def tokens(seen: Seen) -> int:
    """How many tokens the text will give, roughly."""
    survey, sample = seen.survey, seen.survey.sample
    if sample.tried:
        return round(survey.characters * sample.tokens / sample.tried)
    han = survey.han()
    return round(han + (survey.characters - han) / LETTERS)


def seconds(seen: Seen) -> float:
    return 1 + seen.survey.characters * SECONDS.get(seen.aim.lang or language(seen), SECONDS["en"])


def about_needs(seen: Seen) -> Iterator[Finding]:
    """Whether language, vocabulary, length and disk fit what is to be made of the text."""
    if seen.survey.documents:
        yield from _language(seen)
        yield from _words(seen)
        yield from _segmenter(seen)
        yield from _vocabulary(seen)
        yield from _lengths(seen)
    yield from _room(seen)


def _language(seen: Seen) -> Iterator[Finding]:
    survey, given, guess = seen.survey, seen.aim.lang, language(seen)
    han = survey.han()
    letters = sum(n for c, n in characters(survey.counts) if c.isalpha())
    whole = "zh" if 3 * han > letters else "en"
    part = f"{share(han, letters)} of the letters are Chinese"
    if not letters:
        return
    if given and given != whole:
        yield note(f"--lang {given}, but {part}", f"--lang {whole}", {"--lang": whole})
    elif given is None and guess != whole:
        text = f"the beginning looks like {guess}, the whole like {whole} ({part})"
        yield note(text, f"--lang {whole}", {"--lang": whole})
    else:
        yield fine(f"language {whole}: {part}")


def _words(seen: Seen) -> Iterator[Finding]:
    """Who finds the words of Chinese?"""
    sample = seen.survey.sample
    if (seen.aim.lang or language(seen)) != "zh":
        return
    spaced = sample.spaced > 0.3 * (sample.spaced + sample.joined)
    if spaced and seen.aim.segmenter != "spaces":
        text = "the Chinese text is segmented already, with spaces between its words"
        yield note(text, "--segmenter spaces takes them", {"--segmenter": "spaces"})
    elif seen.aim.segmenter == "spaces" and not spaced:
        text = "--segmenter spaces, but there are hardly any spaces between Chinese characters"
        yield note(f"{text}: whole clauses would be words", "--segmenter jieba", {"--segmenter": "jieba"})
    elif seen.aim.segmenter in (None, "jieba") and importlib.util.find_spec("jieba") is None:
        text = "Chinese words are found by the package jieba, which is not installed"
        yield wrong(text, "pip install 'clozeworks[zh]', or --segmenter none")


def _segmenter(seen: Seen) -> Iterator[Finding]:
    """A function of the user's own, tried on sentences of the sample."""
    name, texts = seen.aim.segmenter or "", seen.survey.sample.texts
    if ":" not in name:
        return
    try:
        segment = start_segmentation(name)
        problems = segment(texts)[1] if segment else Problems()
    except InputError as error:
        yield wrong(f"--segmenter {name}: {error.given}; {error.needed}", error.todo)
        return
    failed = problems.counts.total()
    if failed:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(problems.counts.items()))
        text = f"--segmenter {name} fails on {failed:,} of {len(texts):,} sentences ({kinds}): {problems.messages[0]}"
        yield note(text, "mend it; such sentences are left to the tokenizer's own borders")
    elif texts:
        yield fine(f"--segmenter {name} gives words for {pluralize(len(texts), 'sentence')} of a sample")


def _vocabulary(seen: Seen) -> Iterator[Finding]:
    aim, survey, sample = seen.aim, seen.survey, seen.survey.sample
    if aim.tokenizer is not None:
        part = f"{share(sample.unknown, sample.tokens)} of the tokens in a sample are unknown to the tokenizer"
        if 100 * sample.unknown > sample.tokens:
            yield note(part, "does its language fit the text? --tokenizer wordpiece trains one on it")
        else:
            yield fine(part)
        return
    if aim.kind not in KINDS:
        return
    least = 261 if aim.kind == "bytes" else SMALLEST
    if not least <= aim.vocab <= LARGEST:
        yield wrong(
            f"--vocab {aim.vocab:,}: {aim.kind} takes {least:,} to {LARGEST:,} pieces", "try 8,192", {"--vocab": "8192"}
        )
        return
    each = survey.characters / aim.vocab
    alphabet, left = _alphabet(seen)
    size = max(least, _round(survey.characters / ENOUGH), alphabet, _round_up(_letters(seen)))
    if each < ENOUGH and size < aim.vocab:
        text = f"{survey.characters:,} characters are few for {aim.vocab:,} pieces ({each:.0f} a piece)"
        todo = f"more text, or --vocab {size}"
        yield note(f"{text}: many would be seen once or twice", todo, {"--vocab": str(size)})
    elif each >= ENOUGH:
        yield fine(f"enough text for {aim.vocab:,} pieces: {each:,.0f} characters a piece")
    if left > 0.001:
        text = f"{left:.1%} of the Chinese characters find no place in {aim.vocab:,} pieces and become unknown"
        if alphabet <= min(LARGEST, 2 * survey.characters / ENOUGH):
            yield note(text, f"--vocab {alphabet}, or --tokenizer bytes", {"--vocab": str(alphabet)})
        else:
            yield note(text, "--tokenizer bytes knows every character")


def _round(number: float) -> int:
    """The next power of two below."""
    return 1 << max(1, int(number)).bit_length() - 1


def _round_up(number: int) -> int:
    return math.ceil(number / 50) * 50


def _letters(seen: Seen) -> int:
    """How many pieces every character needs."""
    kind, lang = seen.aim.kind, seen.aim.lang or language(seen)
    return 0 if kind == "words" else places_of((c for c, _ in characters(seen.survey.counts)), kind, lang)


def _alphabet(seen: Seen) -> tuple[int, float]:
    """The least vocabulary with a place for all but the rarest Chinese characters, and the share that now has none."""
    counts = sorted((n for c, n in characters(seen.survey.counts) if is_han(c)), reverse=True)
    if len(counts) < 200 or seen.aim.kind == "bytes":
        return 0, 0.0
    part, total = ALPHABET_SHARE[seen.aim.lang or language(seen)], sum(counts)
    left = sum(counts[int(seen.aim.vocab * part) :]) / total if _letters(seen) > seen.aim.vocab else 0.0
    covered = needed = 0
    while covered < 0.9995 * total:
        covered += counts[needed]
        needed += 1
    return math.ceil((needed + 200) / part / 100) * 100, left


def _lengths(seen: Seen) -> Iterator[Finding]:
    survey = seen.survey
    if seen.reading.pairs:
        return
    limit = seen.aim.length * survey.characters / max(1, tokens(seen))
    short = survey.lengths.below(limit)
    text = f"{share(short, survey.documents)} of the documents are shorter than an example of {seen.aim.length} tokens"
    if 2 * short > survey.documents:
        yield note(text, "packing puts several into one example; nothing has to be done")
    else:
        yield fine(text)


def _room(seen: Seen) -> Iterator[Finding]:
    if seen.aim.out is None:
        return
    out = Path(seen.aim.out)
    place = out.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    needed = tokens(seen) * TOKEN_BYTES + 5_000_000
    if not place.is_dir() or not os.access(place, os.W_OK):
        yield wrong(f"--out {out}: {place} is no directory that can be written to", "choose another --out")
        return
    if out.is_dir() and any(out.iterdir()) and not seen.aim.overwrite:
        yield wrong(f"--out {out}: there is something in it", "choose another --out, or --overwrite prepared text")
    free = shutil.disk_usage(place).free
    text = f"about {needed / 1e6:,.0f} MB are needed in {place}, {free / 1e6:,.0f} MB are free"
    if needed > free:
        yield wrong(text, "choose another --out, or make room")
    else:
        yield fine(text)
