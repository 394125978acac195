"""A table of words that begins as skip-gram vectors of the run's own text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clozeworks.core.bounds import Count
from clozeworks.core.spec import to_dict
from clozeworks.data.shards.corpus import Corpus
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.words import WordsLayer
from clozeworks.objectives.objective import Objective
from clozeworks.starts.initializer import Fresh, Initializer
from clozeworks.starts.word_table import keep_table, need_table, put_rows, standardise


@dataclass(slots=True)
class SkipgramTable(Initializer):
    """The table of words begins as vectors that predict the tokens around each token (Mikolov et al. 2013).

    log s(u_c . v_w) + sum over `negative` drawn n of log s(-u_n . v_w),  s the logistic function,  table = v

    Trained on the tokens of the text, document after document, on one thread: the same text gives the same table. Rows
    are standardised as those of `CountedTable`, whose alternative it is; that one needs a fraction of the time.

    [V, E]. O(tokens `window` `negative` E) an epoch. Needs numba (the extra `vectors`).
    """

    option: ClassVar[str] = "skipgram"
    reads_text: ClassVar[bool] = True
    window: Count = 5
    negative: Count = 5
    epochs: Count = 5

    def check_model(self, where: str, model: Architecture, objective: Objective) -> None:
        need_table(where, "SkipgramTable", model)

    def begin(self, fresh: Fresh) -> list[str]:
        layer = fresh.model.encoder.embed.words
        assert isinstance(layer, WordsLayer)
        if not fresh.corpora:
            return ["no text to learn vectors from: the table of words begins at random"]
        count = put_rows(layer, self.table(fresh.corpora, layer.width), fresh.deviation)
        return [f"{count:,} of {layer.vocab:,} tokens begin as their skip-gram vectors"]

    def table(self, corpora: Sequence[tuple[Corpus, float]], width: int) -> np.ndarray:
        """[V, width], rows of length sqrt(width), or 0 where a token does not occur; read where it was kept before."""
        make = lambda: standardise(self.vectors(corpora, width))  # noqa: E731
        return keep_table(self.option, [to_dict(self)], corpora, (corpora[0][0].vocab, width), make)

    def vectors(self, corpora: Sequence[tuple[Corpus, float]], width: int) -> np.ndarray:
        """Trained anew. Of several texts every token is read as often as any other."""
        from clozeworks.vectors.train import Settings, train
        from clozeworks.vectors.words import Words

        pieces = [text.take(np.array([0]), np.array([len(text)])).tokens for text, _ in corpora]
        lengths = [np.diff(text.sentences[text.documents]) for text, _ in corpora]
        ends = np.cumsum(np.concatenate(lengths), dtype=np.int64)
        tokens, vocab = np.concatenate(pieces), corpora[0][0].vocab
        counts = np.bincount(tokens, minlength=vocab)
        order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]  # the frequent first
        rank = np.zeros(vocab, np.int32)
        rank[order] = np.arange(len(order))
        words = Words(list(map(str, order)), counts[order], rank[tokens], np.unique(ends[ends > 0]), len(tokens))
        settings = Settings(dim=width, window=self.window, negative=self.negative, epochs=self.epochs, workers=1)
        table = np.zeros((vocab, width), np.float32)
        table[order] = train(words, settings).table
        return table
