"""The table of words, read on the way in and again, tied, on the way out."""

from torch import Tensor, nn


class WordsLayer(nn.Module):
    """V x E vectors: `forward` looks rows up; a loss may score a vector against all of them."""

    def __init__(self, vocab: int, width: int):
        super().__init__()
        self.table = nn.Embedding(vocab, width)

    @property
    def width(self) -> int:
        return self.table.embedding_dim

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens)
