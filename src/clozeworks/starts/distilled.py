"""A table of words that begins as what a teacher knows of them.

A teacher with another tokenizer has no row for a token, but it can read what the token spells.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from clozeworks.core.bounds import Share
from clozeworks.core.spec import to_dict
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.words import WordsLayer
from clozeworks.objectives.objective import Objective
from clozeworks.starts.counted import CountedTable
from clozeworks.starts.initializer import Fresh, Initializer, TeacherVectors
from clozeworks.starts.word_table import keep_table, need_table, put_rows, standardise


@dataclass(slots=True)
class DistilledTable(Initializer):
    """The table of words begins as a teacher's vectors of what tokens spell, beside what is counted of them.

    X_w = [sqrt(1 - `share`) counted_w, sqrt(`share`) standardised teacher("w")],  X ~ U S V^T,  table = U S

    teacher("w") is its sentence vector of the token's text alone, by its own tokenizer, also of continued pieces;
    counted is what `CountedTable` gives, and a share of 1 leaves it out. Standardised: columns of mean 0, rows of one
    length. Tokens that the text lacks, or that spell nothing (specials, parts of a character), keep what was drawn. The
    table is kept beside the data, under the teacher's digest.

    [V, E]. V short texts for the teacher, O(V (E + D')^2) for the decomposition.
    """

    option: ClassVar[str] = "distilled"
    reads_text: ClassVar[bool] = True
    reads_teacher: ClassVar[bool] = True
    share: Share = 0.5
    counted: CountedTable = field(default_factory=CountedTable)

    def check_model(self, where: str, model: Architecture, objective: Objective) -> None:
        need_table(where, "DistilledTable", model)

    def begin(self, fresh: Fresh) -> list[str]:
        layer = fresh.model.encoder.embed.words
        assert isinstance(layer, WordsLayer)
        if not fresh.corpora or fresh.teacher is None or fresh.tokenizer is None:
            return ["no teacher to ask: the table of words begins at random"]
        table = self.table(fresh.corpora, layer.width, fresh.tokenizer, fresh.teacher)
        count = put_rows(layer, table, fresh.deviation)
        return [f"{count:,} of {layer.vocab:,} tokens begin as what the teacher knows of them"]

    def table(
        self, corpora: Sequence[tuple[Corpus, float]], width: int, tokenizer: Tokenizer, teacher: TeacherVectors
    ) -> np.ndarray:
        """[V, width], rows of length sqrt(width), or 0; read where it was kept before."""
        key = [to_dict(self), teacher.digest]
        make = lambda: self._vectors(corpora, width, tokenizer, teacher)  # noqa: E731
        return keep_table(self.option, key, corpora, (corpora[0][0].vocab, width), make)

    def _vectors(
        self, corpora: Sequence[tuple[Corpus, float]], width: int, tokenizer: Tokenizer, teacher: TeacherVectors
    ) -> np.ndarray:
        occurs = np.sum([text.unigram() for text, _ in corpora], axis=0) > 0
        texts = {token: text for token, text in spell_tokens(tokenizer).items() if occurs[token]}
        tokens = np.fromiter(texts, np.int64, len(texts))
        read = teacher.encode(list(texts.values()))
        vectors = np.zeros((len(occurs), read.shape[1]), np.float32)
        vectors[tokens] = read
        vectors = standardise(vectors) * np.sqrt(self.share / vectors.shape[1])
        if self.share < 1:
            counted = self.counted.table(corpora, width) * np.sqrt((1 - self.share) / width)
            vectors = np.concatenate([counted, vectors], axis=1)
        return standardise(_reduce(vectors, width))


def spell_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    """What each token spells within a text; those that spell nothing, or a part of a character, are left out."""
    plain = [token for token in range(tokenizer.size) if token not in tokenizer.special_ids]
    anchor = next((token for token in plain if tokenizer.decode([token]).isalnum()), None)
    before = "" if anchor is None else tokenizer.decode([anchor])
    spelled = {}
    for token in plain:
        # Behind another token, since a piece that continues a word may be marked as such where it stands alone.
        text = tokenizer.decode([token] if anchor is None else [anchor, token])
        text = text[len(before) :].strip() if text.startswith(before) else tokenizer.decode([token]).strip()
        if text and "\ufffd" not in text:
            spelled[token] = text
    return spelled


def _reduce(vectors: np.ndarray, width: int) -> np.ndarray:
    """U S of the first singular vectors, 0 in columns beyond; the largest entry of each is positive."""
    axes = np.linalg.eigh(vectors.T.astype(np.float64) @ vectors)[1][:, ::-1][:, :width]
    reduced = np.zeros((len(vectors), width), np.float32)
    scores = vectors @ axes.astype(np.float32)
    signs = np.sign(scores[np.abs(scores).argmax(0), np.arange(scores.shape[1])])
    reduced[:, : scores.shape[1]] = scores * np.where(signs == 0, 1, signs)
    return reduced
