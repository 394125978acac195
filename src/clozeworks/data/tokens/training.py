"""Training of every kind of tokenizer: the same text always gives the same file.

The trainers of `tokenizers` number the pieces `##x` and `x</w>` in the order of a randomly seeded hash table, so two
runs over one text give different vocabularies. We fix that order by naming the alphabet, with and without the mark,
before they start; the unigram model has a trainer of its own. Texts are cut and streamed: what is held is the distinct
words, and of unspaced text, where nearly every clause is distinct, a sample of bounded size.
"""

import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from clozeworks.core.characters import HALF_A_PAIR, is_han
from clozeworks.core.errors import InputError, suggest
from clozeworks.data.text.sentences import cut
from clozeworks.data.tokens import pieces as parts
from clozeworks.data.tokens import unigram as unigram_training
from clozeworks.data.tokens.pieces import END, SPACE
from clozeworks.data.tokens.word_borders import is_punctuation

BRACKETS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ANGLES = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
MIXED = {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
SPECIALS = {
    "wordpiece": BRACKETS,
    "bytes": ANGLES,
    "bpe": ANGLES,
    "unigram": MIXED,
    "words": BRACKETS,
    "chars": BRACKETS,
}
KINDS = tuple(SPECIALS)
SMALLEST, LARGEST = 64, 1_000_000
# An alphabet is capped at this share of the vocabulary; a letter takes two places (x and ##x), a Chinese character one.
# What words then leave free goes to the characters that were cut.
ALPHABET_SHARE = {"en": 0.125, "zh": 0.8}
ALPHABET_LEAST = 256  # places, or half of a very small vocabulary: letters, digits and punctuation come first
SMALL_TEXT = 100_000  # characters; in a larger text one occurrence is not enough
RARE = 2e-7  # a character below this share of the text (and below 5 occurrences) is left to [UNK]
CLAUSE = 256  # characters of unspaced text that merges may look at together: their cost grows with the square
UNSPACED = 2_000_000  # characters of unspaced text that merges are counted on: about 0.5 GB
RUNS = 500_000  # distinct runs that the unigram model is trained on

Texts = Callable[[], Iterable[str]]
_RUN = re.compile(rf"{SPACE}|\d+|[^\W\d_]+|(?:(?!{SPACE})[\W_])+")


def train(texts: Texts, kind: str, vocab: int, lowercase: bool, lang: str) -> tokenizers.Tokenizer:
    """Read the texts (twice where the alphabet is needed first) and train."""
    if kind not in KINDS:
        needed = f"a kind that can be trained ({', '.join(KINDS)}), or a path, is needed"
        raise InputError("tokenizer", repr(kind), needed, suggest(kind, KINDS))
    if lang not in ALPHABET_SHARE:
        raise InputError("lang", repr(lang), "a known language is needed", suggest(lang, ALPHABET_SHARE))
    smallest = 256 + len(ANGLES) if kind == "bytes" else SMALLEST
    if not smallest <= vocab <= LARGEST:
        needed = f"{kind} takes {smallest:,} to {LARGEST:,} pieces"
        raise InputError("vocab", f"{vocab:,}", needed, f"try {8192:,}")
    try:
        return _TRAINERS[kind](texts, vocab, lowercase, lang)
    except UnicodeEncodeError as error:
        given = f"{HALF_A_PAIR} in {error.object[:40]!a}"
        raise InputError("texts", given, "Unicode text is needed", "leave that character out") from None


def _wordpiece(texts: Texts, vocab: int, lowercase: bool, lang: str) -> tokenizers.Tokenizer:
    normalizer = parts.wordpiece_normalizer(lowercase)
    alphabet, rest = _alphabet(texts(), normalizer, _places(vocab, lang), _twice_inside)
    order = [*BRACKETS.values(), *alphabet, *("##" + letter for letter in alphabet if _can_continue(letter))]
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=max(vocab, len(order)),
        min_frequency=2,
        special_tokens=order,  # in this order they get the first ids; they are not specials of the result
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_pieces(texts()), trainer)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    _fill(vocabulary, vocab, rest, lambda letter: [letter, "##" + letter] if _can_continue(letter) else [letter])
    return parts.wordpiece_tokenizer(vocabulary, normalizer, BRACKETS)


def _byte_pairs(texts: Texts, vocab: int, lowercase: bool, lang: str) -> tokenizers.Tokenizer:
    # A space before each sentence makes its first word the same token as inside one; Chinese has no spaces.
    prefix_space = lang != "zh"
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=list(ANGLES.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_clauses(texts) if lang == "zh" else _pieces(texts()), trainer)
    vocabulary, merges = _merges(tokenizer)
    return parts.byte_level_tokenizer(vocabulary, merges, ANGLES, prefix_space)


def _pairs(texts: Texts, vocab: int, lowercase: bool, lang: str) -> tokenizers.Tokenizer:
    """Character-level BPE: words end in `</w>`; in Chinese, which has few spaces, they begin with `▁` after one."""
    spaced = lang == "zh"
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=ANGLES["unk"]))
    if spaced:
        normalizer = parts.spaced_normalizer(lowercase, compatible=False)
        alphabet, rest = _alphabet(texts(), normalizer, _places(vocab, lang), _once)
        alphabet = sorted({*alphabet, SPACE})
        order = [*ANGLES.values(), *alphabet]
        # pieces of words and of clauses, not of both with their punctuation
        marks = pre_tokenizers.Split(tokenizers.Regex(rf"{SPACE}?[\p{{L}}\p{{M}}]+|{SPACE}?\p{{N}}+"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(SPACE, "never"), marks])
    else:
        normalizer = parts.wordpiece_normalizer(lowercase)
        alphabet, rest = _alphabet(texts(), normalizer, _places(vocab, lang), _twice_inside)
        inside = [letter for letter in alphabet if _can_continue(letter)]
        order = [*ANGLES.values(), *inside, *(letter + END for letter in alphabet)]
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=max(vocab, len(order)),
        min_frequency=2,
        special_tokens=order,
        initial_alphabet=[],
        limit_alphabet=len(alphabet),
        end_of_word_suffix="" if spaced else END,
        show_progress=False,
    )
    read = _known(_clauses(texts) if spaced else _pieces(texts()), normalizer, alphabet)
    tokenizer.train_from_iterator(read, trainer)
    vocabulary, merges = _merges(tokenizer)
    if spaced:
        _fill(vocabulary, vocab, rest, lambda letter: [letter])
        return parts.spaced_tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"), normalizer, "never", ANGLES)
    _fill(vocabulary, vocab, rest, lambda letter: [letter + END, *([letter] if _can_continue(letter) else [])])
    return parts.suffix_tokenizer(vocabulary, merges, normalizer, ANGLES)


def _unigram(texts: Texts, vocab: int, lowercase: bool, lang: str) -> tokenizers.Tokenizer:
    """As SentencePiece has it: `▁` for a space, pieces of one script only; Chinese pieces lie inside a clause."""
    normalizer = parts.spaced_normalizer(lowercase, compatible=lang != "zh")
    prefix = "never" if lang == "zh" else "first"
    alphabet, rest = _alphabet(texts(), normalizer, _places(vocab, lang), _once)
    counts: Counter[str] = Counter()
    for text in _pieces(texts()):
        spelt = normalizer.normalize_str(text).replace(" ", SPACE)
        counts.update(_runs(spelt if lang == "zh" else SPACE + spelt))
        if len(counts) > RUNS:
            counts = _thinned(counts)
    pieces = unigram_training.train(counts, {*alphabet, SPACE}, vocab - len(MIXED))
    rarest = min(score for _, score in pieces)
    free = max(0, vocab - len(MIXED) - len(pieces))
    pieces += [(letter, rarest) for letter in rest if letter != SPACE][:free]
    model = models.Unigram([*((name, 0.0) for name in MIXED.values()), *pieces], unk_id=list(MIXED).index("unk"))
    return parts.spaced_tokenizer(model, normalizer, prefix, MIXED)


def _words(texts: Texts, vocab: int, lowercase: bool, lang: str) -> tokenizers.Tokenizer:
    normalizer = parts.wordpiece_normalizer(lowercase)
    tokenizer = parts.words_tokenizer({"[UNK]": 0}, normalizer, {"unk": "[UNK]"})
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab, min_frequency=1, special_tokens=list(BRACKETS.values()), show_progress=False
    )
    tokenizer.train_from_iterator(_pieces(texts()), trainer)
    return parts.words_tokenizer(tokenizer.get_vocab(with_added_tokens=False), normalizer, BRACKETS)


def _characters(texts: Texts, vocab: int, lowercase: bool, lang: str) -> tokenizers.Tokenizer:
    """Every character a token, the space written `▁`; BPE without merges, so that words keep their borders."""
    normalizer = parts.spaced_normalizer(lowercase, compatible=False)
    alphabet, _ = _alphabet(texts(), normalizer, vocab - len(BRACKETS) - 1, _once, rare=1)
    vocabulary = {token: index for index, token in enumerate([*BRACKETS.values(), SPACE, *alphabet])}
    return parts.spaced_tokenizer(models.BPE(vocabulary, [], unk_token="[UNK]"), normalizer, "never", BRACKETS)


_TRAINERS = dict(zip(KINDS, (_wordpiece, _byte_pairs, _pairs, _unigram, _words, _characters), strict=True))


def _merges(tokenizer: tokenizers.Tokenizer) -> tuple[dict[str, int], list[tuple[str, str]]]:
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [(left, right) for left, right in model["merges"]]


def _pieces(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from cut(text)


def _clauses(texts: Texts) -> Iterator[str]:
    """Unspaced text in short pieces, and of a large text those that a hash of them chooses."""
    total = sum(map(len, texts()))
    border = 2**32 * min(1.0, UNSPACED / max(total, 1))
    for text in texts():
        for piece in cut(text, CLAUSE):
            if zlib.crc32(piece.encode()) < border:
                yield piece


def _known(texts: Iterable[str], normalizer: normalizers.Normalizer, alphabet: list[str]) -> Iterator[str]:
    """The texts normalised, with a space for each letter outside the alphabet, so that no trainer learns it."""
    keep = {*alphabet, " "}
    for text in texts:
        spelt = normalizer.normalize_str(text)
        yield spelt if keep.issuperset(spelt) else "".join(c if c in keep else " " for c in spelt)


def _runs(text: str) -> Iterator[str]:
    """Letters, digits or marks in a row, with the space before them, in pieces of bounded length."""
    space = ""
    for run in _RUN.findall(text):
        if run == SPACE:
            if space:
                yield space
            space = SPACE
        else:
            whole, space = space + run, ""
            for at in range(0, len(whole), unigram_training.LONGEST_RUN):
                yield whole[at : at + unigram_training.LONGEST_RUN]
    if space:
        yield space


def _thinned(counts: Counter[str]) -> Counter[str]:
    """The more frequent half; among equals a hash chooses."""
    order = sorted(counts.items(), key=lambda item: (-item[1], zlib.crc32(item[0].encode()), item[0]))
    return Counter(dict(order[: len(order) // 2]))


def _places(vocab: int, lang: str) -> int:
    return max(int(vocab * ALPHABET_SHARE[lang]), min(vocab // 2, ALPHABET_LEAST))


def places_of(characters: Iterable[str], kind: str, lang: str) -> int:
    """How large a vocabulary has to be to hold each of these characters, the specials and ASCII."""
    if kind == "bytes":
        return 256 + len(ANGLES)
    cost = _twice_inside if kind == "wordpiece" or (kind == "bpe" and lang != "zh") else _once
    known = {lower for c in (*characters, *map(chr, range(33, 127))) for lower in c.lower() if not lower.isspace()}
    return len(SPECIALS[kind]) + 1 + sum(map(cost, known))


def _can_continue(character: str) -> bool:
    """May it stand inside a word? BERT splits off punctuation and Chinese characters."""
    return not is_han(character) and not is_punctuation(character)


def _twice_inside(character: str) -> int:
    return 1 + _can_continue(character)


def _once(character: str) -> int:
    return 1


def _alphabet(
    texts: Iterable[str],
    normalizer: normalizers.Normalizer,
    places: int,
    cost: Callable[[str], int],
    rare: float | None = None,
) -> tuple[list[str], list[str]]:
    """The most frequent characters after normalisation, as many as the places hold, in code point order; then those
    without a place, the most frequent first."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for result in normalizer.normalize_str(character):
            if not result.isspace():
                counts[result] += count
    for character in map(chr, range(33, 127)):  # a user may type what this text happens not to hold
        counts[normalizer.normalize_str(character)] += 0
    if rare is None:
        rare = 1 if counts.total() < SMALL_TEXT else min(5.0, max(2.0, counts.total() * RARE))
    order = sorted(counts.items(), key=lambda item: (not item[1], not item[0].isascii(), -item[1], item[0]))
    worthy = [character for character, count in order if count >= rare or character.isascii()]
    ends = itertools.accumulate(map(cost, worthy))
    fit = sum(end <= places for end in ends)
    return sorted(worthy[:fit]), worthy[fit:]


def _fill(vocabulary: dict[str, int], size: int, rest: list[str], spell: Callable[[str], list[str]]) -> None:
    """Give the places that training left free to characters beyond the share of the alphabet, in place."""
    for letter in rest:
        fresh = [piece for piece in spell(letter) if piece not in vocabulary]
        if len(vocabulary) + len(fresh) > size:
            return
        for piece in fresh:
            vocabulary[piece] = len(vocabulary)
