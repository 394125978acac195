"""What the parts of a recipe must go with: the model as it will be, before anything is built."""

from dataclasses import dataclass
from typing import Literal

from clozeworks.nn.decoder import Decoder
from clozeworks.nn.embed import Embed
from clozeworks.nn.stack import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Encoder and decoder of a recipe, for the rules that its objective, task and training have about them."""

    width: int
    embed: Embed
    stack: Stack
    decoder: Decoder | None

    @property
    def top(self) -> Stack:
        """The stack that the losses read: the decoder's where there is one."""
        return self.stack if self.decoder is None else self.decoder.stack

    @property
    def scoring(self) -> tuple[Literal["encoder", "decoder"], Embed]:
        """Whose embedding words are scored against on the way out, and which it is."""
        if self.decoder is None or self.decoder.embed is None:
            return "encoder", self.embed
        return "decoder", self.decoder.embed
