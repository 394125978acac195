"""A map to a teacher's vectors that begins as the best one, not as any.

Most of the length of a fresh student's sentence vectors is common to all texts: a map that was drawn sees little else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from clozeworks.core.batch import from_padded
from clozeworks.core.bounds import Count, Positive
from clozeworks.objectives.losses.sentence_vectors import SentenceVectorsLayer, mean_vectors
from clozeworks.starts.initializer import Fresh, Initializer
from clozeworks.starts.word_table import keep_table

TOGETHER = 32  # texts that the student reads together


@dataclass(slots=True)
class FittedMap(Initializer):
    """The map of `SentenceVectors` begins as that which fits the fresh student to the teacher, by ridge regression.

    W = T^T S (S^T S + `ridge` tr(S^T S) / D)^-1,  T and S [n, D'] and [n, D] sentence vectors of both

    of `texts` sentences at equal distances in the text. It stands behind the other starts, whose weights it reads. What
    the teacher says is kept beside the data.

    [D', D]. A pass of both over the sentences, O(n D^2).
    """

    option: ClassVar[str] = "fitted"
    reads_text: ClassVar[bool] = True
    reads_teacher: ClassVar[bool] = True
    texts: Count = 1024
    ridge: Positive = 0.01

    def begin(self, fresh: Fresh) -> list[str]:
        head = fresh.model.head("sentence_vectors")
        if not isinstance(head, SentenceVectorsLayer):
            return ["no map to a teacher's vectors begins as fitted: SentenceVectors is not among the losses"]
        if not fresh.corpora or fresh.teacher is None or fresh.tokenizer is None:
            return ["no teacher to ask: the map to its vectors begins at random"]
        rows = list(self._sentences(fresh))
        theirs = self._ask(rows, fresh, len(head.map.weight)).astype(np.float64)
        mine = _read(fresh, rows).astype(np.float64)
        square = mine.T @ mine
        square += self.ridge * np.trace(square) / len(square) * np.eye(len(square))
        fitted = np.linalg.solve(square, mine.T @ theirs).T
        with torch.no_grad():
            head.map.weight.copy_(torch.from_numpy(fitted))
        return []

    def _ask(self, rows: list[list[int]], fresh: Fresh, width: int) -> np.ndarray:
        """[n, D']: the teacher's vectors, which are kept beside the data."""
        teacher, tokenizer = fresh.teacher, fresh.tokenizer
        assert teacher is not None
        assert tokenizer is not None
        make = lambda: teacher.encode([tokenizer.write(row) for row in rows])  # noqa: E731
        key = [self.texts, fresh.objective.segments.length, teacher.digest]
        return keep_table(self.option, key, fresh.corpora, (len(rows), width), make)

    def _sentences(self, fresh: Fresh) -> Iterator[list[int]]:
        """Tokens of sentences, as many as an example has room for."""
        room = fresh.objective.segments.length - 2
        share = -(-self.texts // len(fresh.corpora))
        for text, _ in fresh.corpora:
            count = len(text.sentences) - 1
            for at in np.unique(np.linspace(0, count - 1, min(share, count)).astype(np.int64)).tolist():
                begin, end = int(text.sentences[at]), int(text.sentences[at + 1])
                tokens = text.take(np.array([begin]), np.array([min(end, begin + room)])).tokens.tolist()
                if tokens:
                    yield tokens


@torch.no_grad()
def _read(fresh: Fresh, rows: list[list[int]]) -> np.ndarray:
    """[n, D]: the fresh student's sentence vectors, rows of like length together."""
    assert fresh.tokenizer is not None
    special, model = fresh.tokenizer.vocabulary(), fresh.model
    order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
    vectors = np.zeros((len(rows), model.encoder.width), np.float32)
    for begin in range(0, len(order), TOGETHER):
        chosen = order[begin : begin + TOGETHER]
        framed = [[special.cls, *rows[n], special.sep] for n in chosen]
        tokens = torch.full((len(framed), max(map(len, framed))), special.pad)
        for at, row in enumerate(framed):
            tokens[at, : len(row)] = torch.tensor(row)
        lengths = torch.tensor([len(row) for row in framed])
        batch = from_padded(tokens, (torch.arange(tokens.shape[1]) < lengths[:, None]).long())
        last = model.encoder(batch.tokens, batch.token_info, batch.context()).last
        vectors[chosen] = mean_vectors(last, batch).numpy()
    return vectors
