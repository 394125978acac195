"""What a user should hear about their text, in sentences."""

import re
from importlib.util import find_spec
from typing import Any

from clozeworks.data.records.wording import pluralize
from clozeworks.data.text.sentences import LONGEST

Manifest = dict[str, Any]


def notes_of(manifest: Manifest, trained: bool) -> list[str]:
    """Everything that was changed, left out, or is likely not what was meant."""
    return [*_split(manifest), *_vocabulary(manifest, trained), *_reading(manifest), *_words(manifest)]


def _split(manifest: Manifest) -> list[str]:
    heldout, splits = manifest["settings"]["heldout"], manifest["splits"]
    train, held = splits["train"], splits.get("heldout")
    if held is None and heldout:
        one = "there is one document only" if train["documents"] == 1 else "all documents are the same or empty"
        lines = all(re.search(r"\.(txt|text|md)(\.\w+)?$", source["path"]) for source in manifest["sources"])
        return [f"no held-out split: {one}" + ("; put a blank line between documents" if lines else "")]
    if held and held["tokens"] > 3 * heldout * (held["tokens"] + train["tokens"]):
        share = held["tokens"] / (held["tokens"] + train["tokens"])
        return [f"{share:.0%} of the tokens are held out instead of {heldout:.0%}: the documents are few and long"]
    return []


def _vocabulary(manifest: Manifest, trained: bool) -> list[str]:
    notes = []
    size, asked, train = manifest["tokenizer"]["size"], manifest["settings"]["vocab"], manifest["splits"]["train"]
    if trained and size < asked:
        notes.append(f"the text gives {size:,} pieces, not {asked:,}: the vocabulary is smaller than asked")
    unknown = train["unknown"] / train["tokens"]
    if unknown > 0.01:
        notes.append(f"{unknown:.1%} of the tokens are unknown to the tokenizer: does its language fit the text?")
    return notes


def _reading(manifest: Manifest) -> list[str]:
    read, dropped = manifest["read"], manifest["dropped"]
    counted = [
        (read.get("replaced"), "invalid byte sequence", "became U+FFFD"),
        (read.get("skipped"), "unreadable line", "left out"),
        (read.get("nul"), "NUL character", "removed"),
        (read.get("bad_spans"), "phrase or entity span", "left out, not fitting the text"),
        (read.get("bad_words"), "row", "with words that do not join to the text, which were left out"),
        (read.get("cut_words"), "word", "over the end of a sentence divided there"),
        (read.get("other_files"), "file", "of other kinds passed over"),
        (read.get("dangling_links"), "link", "passed over, leading nowhere"),
        (read.get("normalised"), "document", "changed by Unicode normalisation"),
        *((n, "file", f"read as {name}") for name, n in read.get("encodings", {}).items() if name != "utf-8"),
        (dropped["empty_rows"], "row", "without text left out"),
        (dropped["empty_documents"], "document", "without a token left out"),
        (dropped["empty_sentences"], "sentence", "of characters that the tokenizer leaves out"),
        (dropped["empty_pairs"], "pair", "with an empty side left out"),
        (dropped["copies"], "copy", "of another document left out"),
    ]
    notes = [f"{pluralize(count, what)} {how}" for count, what, how in counted if count]
    if dropped["long_sentences_cut"]:
        notes.append(f"stretches of more than {LONGEST:,} characters without a border were cut, nothing was lost")
    return notes


def _words(manifest: Manifest) -> list[str]:
    words, settings = manifest["words"], manifest["settings"]
    notes = []
    unsegmented = settings["lang"] == "zh" and settings["segmenter"] == "none" and not words["given"]
    if unsegmented and find_spec("jieba") is None:
        notes.append("every Chinese character counts as a word; for whole words: pip install 'clozeworks[zh]'")
    problems = {name: count for name, count in words.items() if name.startswith("segmenter") and count}
    for name, count in problems.items():
        complaint = f" ({words['complaints'][0]})" if words.get("complaints") else ""
        notes.append(f"{pluralize(count, 'sentence')} left to the tokenizer's own borders: {name}{complaint}")
    if words.get("misaligned"):
        notes.append(f"{pluralize(words['misaligned'], 'word border')} inside a token left to the tokenizer")
    return notes
