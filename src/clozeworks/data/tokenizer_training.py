"""Training of WordPiece and byte-level BPE: the same text always gives the same file.

The `tokenizers` trainer numbers the pieces `##x` in the order of a randomly seeded hash table, so two runs over one
text give different vocabularies. We fix that order by naming the alphabet, with and without `##`, before it starts.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from clozeworks.data.sentences import cut
from clozeworks.data.word_borders import is_han, is_punctuation
from clozeworks.errors import InputError, suggest

Kind = Literal["wordpiece", "bytes"]

BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
SMALLEST, LARGEST = 64, 1_000_000
# An alphabet is capped at this share of the vocabulary; a letter takes two places (x and ##x), a Chinese character one.
ALPHABET_SHARE = {"en": 0.125, "zh": 0.8}
ALPHABET_LEAST = 256  # places, or half of a very small vocabulary: letters, digits and punctuation come first
SMALL_TEXT = 100_000  # characters; in a larger text one occurrence is not enough
RARE = 2e-7  # a character below this share of the text (and below 5 occurrences) is left to [UNK]


def train(
    texts: Callable[[], Iterable[str]], kind: str, vocab: int, lowercase: bool, lang: str
) -> tokenizers.Tokenizer:
    """Read the texts (twice for WordPiece, which needs its alphabet first) and train."""
    if kind not in ("wordpiece", "bytes"):
        todo = suggest(kind, ["wordpiece", "bytes"])
        raise InputError("tokenizer", repr(kind), "a kind that can be trained, or a path, is needed", todo)
    if lang not in ALPHABET_SHARE:
        raise InputError("lang", repr(lang), "a known language is needed", suggest(lang, ALPHABET_SHARE))
    smallest = 256 + len(ROBERTA_SPECIALS) if kind == "bytes" else SMALLEST
    if not smallest <= vocab <= LARGEST:
        needed = f"{kind} takes {smallest:,} to {LARGEST:,} pieces"
        raise InputError("vocab", f"{vocab:,}", needed, f"try {8192:,}")
    if kind == "bytes":
        return _byte_pairs(texts(), vocab, prefix_space=lang != "zh")
    normalizer = wordpiece_normalizer(lowercase)
    places = max(int(vocab * ALPHABET_SHARE[lang]), min(vocab // 2, ALPHABET_LEAST))
    alphabet = _alphabet(texts(), normalizer, places)
    return _wordpiece(texts(), normalizer, alphabet, vocab)


def wordpiece_normalizer(
    lowercase: bool, strip_accents: bool | None = None, chinese: bool = True
) -> normalizers.BertNormalizer:
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )


def wordpiece_tokenizer(
    vocabulary: dict[str, int], normalizer: normalizers.BertNormalizer, names: dict[str, str]
) -> tokenizers.Tokenizer:
    """BERT's tokenizer around a vocabulary; `names` are the special tokens it has, by role."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=names.get("unk", "[UNK]")))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    specials = sorted(names.values(), key=vocabulary.__getitem__)
    tokenizer.add_special_tokens([tokenizers.AddedToken(name, special=True, normalized=False) for name in specials])
    if "cls" in names and "sep" in names:
        cls, sep = names["cls"], names["sep"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {sep} $B:1 {sep}:1",
            special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
        )
    return tokenizer


def byte_level_tokenizer(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], names: dict[str, str], prefix_space: bool
) -> tokenizers.Tokenizer:
    """RoBERTa's tokenizer around a vocabulary and its merges."""
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    specials = sorted(names.items(), key=lambda item: vocabulary[item[1]])
    tokenizer.add_special_tokens(
        # "the <mask>": the mask takes the space before it, as a word would
        [tokenizers.AddedToken(name, special=True, normalized=False, lstrip=role == "mask") for role, name in specials]
    )
    if "cls" in names and "sep" in names:
        cls, sep = names["cls"], names["sep"]
        tokenizer.post_processor = processors.RobertaProcessing(
            (sep, vocabulary[sep]), (cls, vocabulary[cls]), trim_offsets=True, add_prefix_space=prefix_space
        )
    return tokenizer


def _pieces(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from cut(text)


def _alphabet(texts: Iterable[str], normalizer: normalizers.BertNormalizer, places: int) -> list[str]:
    """The commonest characters after normalisation, as many as the places hold, in code point order."""
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
    rare = 1 if counts.total() < SMALL_TEXT else min(5.0, max(2.0, counts.total() * RARE))
    chosen = []
    for character, count in sorted(counts.items(), key=lambda item: (not item[0].isascii(), -item[1], item[0])):
        if count >= rare or character.isascii():
            places -= 1 + _can_continue(character)
            if places < 0:
                break
            chosen.append(character)
    return sorted(chosen)


def _can_continue(character: str) -> bool:
    """May it stand inside a word? BERT splits off punctuation and Chinese characters."""
    return not is_han(character) and not is_punctuation(character)


def _wordpiece(
    texts: Iterable[str], normalizer: normalizers.BertNormalizer, alphabet: list[str], vocab: int
) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = list(BERT_SPECIALS.values())
    order = specials + alphabet + ["##" + character for character in alphabet if _can_continue(character)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=max(vocab, len(order)),
        min_frequency=2,
        special_tokens=order,  # in this order they get the first ids; they are not specials of the result
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_pieces(texts), trainer)
    return wordpiece_tokenizer(tokenizer.get_vocab(with_added_tokens=True), normalizer, BERT_SPECIALS)


def _byte_pairs(texts: Iterable[str], vocab: int, prefix_space: bool) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    # A space before each sentence makes its first word the same token as inside one; Chinese has no spaces.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=list(ROBERTA_SPECIALS.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_pieces(texts), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [(left, right) for left, right in model["merges"]]
    return byte_level_tokenizer(model["vocab"], merges, ROBERTA_SPECIALS, prefix_space)
