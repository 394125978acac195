"""Tokenizers put together around a vocabulary: one function a kind, used by training and by loading alike."""

from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

SPACE = "▁"  # how SentencePiece writes a space
END = "</w>"  # how character-level BPE marks the last piece of a word
_HAN = r"[\p{Han}\x{3000}-\x{303f}\x{ff00}-\x{ffef}]"


def wordpiece_normalizer(
    lowercase: bool, strip_accents: bool | None = None, chinese: bool = True
) -> normalizers.BertNormalizer:
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )


def spaced_normalizer(lowercase: bool, compatible: bool) -> normalizers.Sequence:
    """For kinds that keep spaces as tokens: one space between words, none around the text.

    `compatible` folds wide and other compatibility forms (NFKC, as SentencePiece does); not for Chinese text, whose
    punctuation would turn into ASCII. Lower-casing drops accents too, as BERT's does.
    """
    steps: list[Any] = [normalizers.Nmt()]
    if lowercase:
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    steps.append(normalizers.NFKC() if compatible else normalizers.NFC())
    steps += [
        normalizers.Replace(tokenizers.Regex(rf"[\s{SPACE}]+"), " "),
        normalizers.Replace(tokenizers.Regex(r"\A | \z"), ""),
    ]
    return normalizers.Sequence(steps)


def assemble(
    model: models.Model,
    normalizer: normalizers.Normalizer | None,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    decoder: decoders.Decoder,
    names: dict[str, str],
) -> tokenizers.Tokenizer:
    """A tokenizer of these parts; `names` are the special tokens it has, by role."""
    tokenizer = tokenizers.Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    return with_specials(tokenizer, names)


def wordpiece_tokenizer(
    vocabulary: dict[str, int], normalizer: normalizers.Normalizer, names: dict[str, str]
) -> tokenizers.Tokenizer:
    """BERT's tokenizer around a vocabulary."""
    model = models.WordPiece(vocabulary, unk_token=names.get("unk", "[UNK]"))
    return assemble(model, normalizer, pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(prefix="##"), names)


def byte_level_tokenizer(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], names: dict[str, str], prefix_space: bool
) -> tokenizers.Tokenizer:
    """RoBERTa's tokenizer around a vocabulary and its merges."""
    model, before = models.BPE(vocab=vocabulary, merges=merges), pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer = assemble(model, None, before, decoders.ByteLevel(), names)
    if "cls" in names and "sep" in names:
        cls, sep = names["cls"], names["sep"]
        tokenizer.post_processor = processors.RobertaProcessing(
            (sep, vocabulary[sep]), (cls, vocabulary[cls]), trim_offsets=True, add_prefix_space=prefix_space
        )
    return tokenizer


def suffix_tokenizer(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], normalizer: normalizers.Normalizer, names: dict[str, str]
) -> tokenizers.Tokenizer:
    """GPT's tokenizer: character-level BPE whose words end in `</w>` (Radford et al. 2018; Sennrich et al. 2016)."""
    model = models.BPE(vocabulary, merges, unk_token=names.get("unk"), end_of_word_suffix=END)
    return assemble(model, normalizer, pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder(END), names)


def spaced_tokenizer(
    model: models.Model, normalizer: normalizers.Normalizer, prefix: str, names: dict[str, str]
) -> tokenizers.Tokenizer:
    """A model whose pieces spell a space as `▁`; `prefix` says whether the text's first word gets one too."""
    before, decoder = pre_tokenizers.Metaspace(SPACE, prefix), decoders.Metaspace(SPACE, prefix)
    return assemble(model, normalizer, before, decoder, names)


def words_tokenizer(
    vocabulary: dict[str, int], normalizer: normalizers.Normalizer, names: dict[str, str]
) -> tokenizers.Tokenizer:
    """Whole words, punctuation marks and Chinese characters; everything else is unknown."""
    model = models.WordLevel(vocabulary, unk_token=names["unk"])
    spaces = decoders.WordPiece(prefix="\0")  # before every word, fewer around punctuation
    unspaced = decoders.Replace(tokenizers.Regex(f"(?<={_HAN}) (?={_HAN})"), "")
    decoder = decoders.Sequence([spaces, decoders.Fuse(), unspaced])
    return assemble(model, normalizer, pre_tokenizers.BertPreTokenizer(), decoder, names)


def with_specials(tokenizer: tokenizers.Tokenizer, names: dict[str, str]) -> tokenizers.Tokenizer:
    """Make the named pieces special and put cls before and sep after each text."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    identity = {name: vocabulary[name] for name in names.values()}
    takes_space = not isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
    ordered = sorted(names.items(), key=lambda item: identity[item[1]])
    tokenizer.add_special_tokens(
        # "the <mask>": where a space belongs to the word after it, the mask takes the space before it, as a word would
        [
            tokenizers.AddedToken(name, special=True, normalized=False, lstrip=takes_space and role == "mask")
            for role, name in ordered
        ]
    )
    if "cls" in names and "sep" in names:
        cls, sep = names["cls"], names["sep"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {sep} $B:1 {sep}:1",
            special_tokens=[(cls, identity[cls]), (sep, identity[sep])],
        )
    return tokenizer
