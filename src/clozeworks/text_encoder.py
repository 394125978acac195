"""A model with its tokenizer and its recipe: what users hold in their hands."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from clozeworks import atomic
from clozeworks.batch import PADDING, Context, Side
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.errors import InputError
from clozeworks.examples import Vocabulary
from clozeworks.exchange import card, files, huggingface
from clozeworks.generate import Draw, Reader, draw, search
from clozeworks.model import Model
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.two_stream import TwoStreamLayer
from clozeworks.objectives.losses.masked_lm import MaskedLMLayer
from clozeworks.objectives.losses.next_token import NextTokenLayer
from clozeworks.objectives.losses.sentence_relation import SentenceRelationLayer
from clozeworks.objectives.segments import PairStream
from clozeworks.pretraining import Recipe
from clozeworks.spec import Spec

Guess = dict[str, Any]


@dataclass(slots=True)
class Outputs:
    """What `TextEncoder.forward` gives, by the names people know."""

    last_hidden_state: Tensor  # [B, L, D]
    hidden_states: tuple[Tensor, ...]  # embeddings, then each layer
    logits: Tensor | None = None  # [B, L, V] where the model has a language-model head
    pooler_output: Tensor | None = None  # [B, D]
    seq_relationship_logits: Tensor | None = None  # [B, 2]


@dataclass(slots=True)
class TextEncoder:
    model: Model
    tokenizer: Tokenizer | None
    recipe: Recipe
    facts: dict[str, Any] = field(default_factory=dict)  # data counts, figures: what its card tells
    unused: list[str] = field(default_factory=list)  # tensors of the directory that no part takes

    @property
    def longest(self) -> int:
        positions = self.recipe.encoder.embed.positions
        return positions.length if isinstance(positions, LearnedPositions) else 1 << 20

    @property
    def kind(self) -> Literal["full", "causal"]:
        """Whom a token sees: all, or those before it."""
        corruption = self.recipe.objective.corruption
        return "causal" if corruption is not None and corruption.kind == "causal" else "full"

    @property
    def language_head(self) -> MaskedLMLayer | NextTokenLayer | None:
        """The head that gives words their scores."""
        heads = (self.model.head(name) for name in ("masked_lm", "next_token", "permuted_lm"))
        return next((head for head in heads if isinstance(head, MaskedLMLayer | NextTokenLayer)), None)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        logits: bool = True,
    ) -> Outputs:
        """Rows of ids, as `transformers` takes them: any padding, masked as keys and never as queries."""
        rows, width = input_ids.shape
        if width > self.longest:
            raise InputError(
                "input_ids", f"{width} tokens", f"the model has {self.longest} positions", "shorten the text"
            )
        vocab = self.recipe.encoder.vocab
        if input_ids.numel() and not 0 <= int(input_ids.min()) <= int(input_ids.max()) < vocab:
            given = f"ids from {int(input_ids.min())} to {int(input_ids.max())}"
            raise InputError(
                "input_ids", given, f"the model has tokens 0 to {vocab - 1}", "use the model's own tokenizer"
            )
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        document = torch.zeros_like(input_ids)
        position = self._positions(input_ids)
        query = Side.make(position, document, self.kind, token_type_ids)
        memory = Side.make(position, torch.where(mask.bool(), 0, PADDING), self.kind, token_type_ids)
        context = Context(query, memory, self.kind, offset=None)
        firsts = torch.arange(rows, device=input_ids.device) * width
        with torch.no_grad() if not self.model.training else torch.enable_grad():
            hidden = self.model.encoder(input_ids, query, context, firsts, layers=True)
            out = Outputs(hidden.last, hidden.layers, pooler_output=hidden.pooled)
            head, pair = self.language_head, self.model.head("sentence_pair")
            if logits and head is not None:
                out.logits = head.logits(hidden.last)
            if isinstance(pair, SentenceRelationLayer) and hidden.pooled is not None:
                out.seq_relationship_logits = pair.logits(hidden.pooled)
        return out

    __call__ = forward

    def _positions(self, input_ids: Tensor) -> Tensor:
        positions = self.recipe.encoder.embed.positions
        if isinstance(positions, LearnedPositions) and positions.offset:
            # Models that count from the padding id skip padding; the padding itself gets the row before position 0.
            real = (input_ids != positions.offset - 1).long()
            return torch.cumsum(real, 1) * real - 1
        return torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)

    def fill_mask(self, text: str, top: int = 5) -> list[Any]:
        """The likeliest words for each mask token: a list of guesses, or one list a mask if there are several."""
        tokenizer, head = self._tokenizer(), self.language_head
        if head is None or head is self.model.head("next_token"):
            needed = "a model pretrained with MaskedLM or PermutedLM is needed"
            raise InputError(self.recipe.name, "no masked-LM head", needed, "pretrain it")
        mask = tokenizer.need("mask")
        written = tokenizer.names["mask"]
        ids, begin = self._framed(tokenizer.encode([text], specials=True)[0].ids.tolist())
        holes = [at for at, token in enumerate(ids) if token == mask]
        if not holes:
            raise InputError(
                "text", repr(text), f"at least one {written} is needed", f"write {written} where a word is missing"
            )
        if len(ids) > self.longest:
            raise InputError("text", f"{len(ids)} tokens", f"the model has {self.longest} positions", "shorten it")
        with torch.no_grad():
            chances = head.logits(self._at_holes(ids, holes)).softmax(-1)
        best = chances.topk(min(top, chances.shape[-1]))
        found = []
        for at, scores, tokens in zip(holes, best.values.tolist(), best.indices.tolist(), strict=True):
            guesses = []
            for score, token in zip(scores, tokens, strict=True):
                filled = [*ids[begin:at], token, *ids[at + 1 : begin - 2]]
                guesses.append(
                    {
                        "token": self._word(token),
                        "score": score,
                        "id": token,
                        "text": tokenizer.decode(filled, skip_specials=False),
                    }
                )
            found.append(guesses)
        return found if len(found) > 1 else found[0]

    def _framed(self, ids: list[int]) -> tuple[list[int], int]:
        """A text between its specials, and where it begins there."""
        tokenizer = self._tokenizer()
        cls, sep = tokenizer.need("cls"), tokenizer.need("sep")
        return ([*ids, sep, cls], 0) if self._class_last else ([cls, *ids, sep], 1)

    def _segments(self, tokens: Tensor) -> Tensor | None:
        """Those of one text: a [CLS] that comes last has a segment of its own."""
        if self.recipe.encoder.embed.segments or not self._class_last:
            return None
        return torch.where(tokens == self._tokenizer().need("cls"), 2, 0)

    @property
    def _class_last(self) -> bool:
        return self._tokenizer().class_last or isinstance(self.recipe.objective.segments, PairStream)

    def _at_holes(self, ids: list[int], holes: list[int]) -> Tensor:
        """[holes, D]: the vectors from which the words there are predicted."""
        tokens = torch.tensor([ids])
        if not isinstance(self.model.encoder.stack, TwoStreamLayer):
            return self.forward(tokens, token_type_ids=self._segments(tokens), logits=False).last_hidden_state[0, holes]
        order = torch.zeros_like(tokens)
        order[0, holes] = 1  # after all others, so that nobody sees what stands there
        side = Side(self._positions(tokens), torch.zeros_like(tokens), order, order, self._segments(tokens))
        hidden = self.model.encoder(tokens, side, Context(side, side, "order", targets=torch.tensor(holes)))
        assert hidden.asked is not None
        return hidden.asked

    def generate(
        self,
        prompt: str = "",
        tokens: int = 50,
        how: Draw | None = None,
        *,
        beams: int = 1,
        penalty: float = 1.0,
        count: int = 1,
        seed: int = 0,
    ) -> list[dict[str, Any]]:
        """Continuations of a text by a model that reads one way: drawn as `how` says, or the best of several beams."""
        tokenizer = self._tokenizer()
        given = tokenizer.encode([prompt])[0].ids.tolist()
        start = [*([] if tokenizer.cls is None else [tokenizer.cls]), *given]
        if not start:
            raise InputError("prompt", "nothing", "this model needs a first token", "give a word to begin with")
        if len(start) >= self.longest:
            raise InputError("prompt", f"{len(start)} tokens", f"the model has {self.longest} positions", "shorten it")
        reader, most = Reader(self.model), min(tokens, self.longest - len(start))
        if beams > 1:
            found = search(reader, start, most, beams, end=tokenizer.sep, penalty=penalty)[:count]
        else:
            found = draw(reader, start, most, how or Draw(), end=tokenizer.sep, count=count, seed=seed)
        return [
            {"text": tokenizer.decode([*given, *one.tokens]), "tokens": one.tokens, "score": one.score} for one in found
        ]

    def _word(self, token: int) -> str:
        tokenizer = self._tokenizer()
        return tokenizer.decode([token], skip_specials=False).strip() or tokenizer.token(token)

    def encode(
        self,
        texts: Sequence[str] | str,
        pool: Literal["mean", "first", "pooled"] = "mean",
        batch_tokens: int = 8192,
    ) -> np.ndarray:
        """Sentence vectors [n, D] in the order given; texts of like length share a batch, long ones are cut."""
        if not isinstance(texts, Iterable):
            raise InputError("texts", repr(texts)[:60], "a string or a list of strings is needed", "convert it")
        texts = [texts] if isinstance(texts, str) else list(texts)
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"texts[{number}]", repr(text)[:60], "a string is needed", "convert it")
        tokenizer = self._tokenizer()
        rows = [self._framed(e.ids[: self.longest - 2].tolist())[0] for e in tokenizer.encode(texts)]
        out = np.zeros((len(rows), self.model.encoder.width), dtype=np.float32)
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        while order:
            width = len(rows[order[-1]])
            count = max(1, batch_tokens // width)
            chosen, order = order[-count:], order[:-count]
            ids = torch.full((len(chosen), width), tokenizer.pad or 0)
            mask = torch.zeros_like(ids)
            for at, n in enumerate(chosen):
                ids[at, : len(rows[n])], mask[at, : len(rows[n])] = torch.tensor(rows[n]), 1
            result = self.forward(ids, mask, self._segments(ids), logits=False)
            out[chosen] = _pool(result, mask, pool).numpy()
        return out

    def vocabulary(self) -> Vocabulary:
        return self._tokenizer().vocabulary()

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(
                self.recipe.name, "a model without a tokenizer", "text needs one", "put tokenizer.json beside it"
            )
        return self.tokenizer


def _pool(result: Outputs, mask: Tensor, pool: str) -> Tensor:
    if pool == "mean":
        weights = mask[..., None].to(result.last_hidden_state.dtype)
        return (result.last_hidden_state * weights).sum(1) / weights.sum(1)
    if pool == "first":
        return result.last_hidden_state[:, 0]
    if result.pooler_output is None:
        raise InputError("pool", pool, "the model has no pooler", "use mean or first")
    return result.pooler_output


def load(path: str | os.PathLike[str], parts: Iterable[type[Spec]] = (), allow_pickle: bool = False) -> TextEncoder:
    """A run or one of its checkpoints, a model directory, or a Hugging Face directory of a supported family."""
    if not isinstance(path, str | os.PathLike):
        raise InputError("path", repr(path)[:60], "the directory of a model or a run is needed", "give a path")
    directory = Path(path)
    if not directory.is_dir():
        given = "a file" if directory.exists() else "no such directory"
        raise InputError(path, given, "a run, a model or a Hugging Face directory is needed", "check the path")
    if (directory / files.RECIPE).is_file():
        weights, facts, place = _weights(directory)
        recipe = files.read_recipe(place / files.RECIPE, parts)
        return TextEncoder(files.build(recipe, weights, directory), files.read_tokenizer(place), recipe, facts)
    if (directory / huggingface.CONFIG).is_file():
        found = huggingface.read(directory, allow_pickle)
        model = files.build(found.recipe, found.tensors, directory)
        return TextEncoder(model, files.read_tokenizer(directory), found.recipe, unused=found.unused)
    needed = f"{files.RECIPE} or {huggingface.CONFIG} is needed"
    raise InputError(path, "neither a model nor a run", needed, "give the directory that `pretrain` or `export` wrote")


def _weights(directory: Path) -> tuple[dict[str, Tensor], dict[str, Any], Path]:
    """The weights of a model directory or a checkpoint, or those of a run's newest sound checkpoint; what its card
    should tell; and where recipe and tokenizer are, of a run those of the checkpoint, which are verified."""
    from clozeworks.exchange import tensors
    from clozeworks.train import checkpoint

    if (directory / checkpoint.MANIFEST).is_file():
        try:
            checkpoint.verify(directory)
        except checkpoint.DamagedError as error:
            raise InputError(directory, error, "a sound checkpoint is needed", "take another, or the run") from None
    if (directory / tensors.FILE).is_file():
        return tensors.read(directory / tensors.FILE), card.read_facts(directory), directory
    newest = checkpoint.newest(directory)
    if newest is None:
        raise InputError(
            directory, "no checkpoint that verifies", "a trained model is needed", "run the pretrain command again"
        )
    place = newest.path if (newest.path / files.RECIPE).is_file() else directory
    return newest.tensors(), card.read_facts(directory), place


def _tell_tokenizer(file: Path, encoder: TextEncoder) -> None:
    """What their tokenizer must know of the model: how long a text may be, and whether segments are told apart."""
    names = ["input_ids", "token_type_ids", "attention_mask"]
    biases = (getattr(mixer, "bias", None) for mixer in encoder.recipe.encoder.stack.mixers())
    if encoder.recipe.encoder.embed.segments < 2 and not any(getattr(bias, "segments", False) for bias in biases):
        names.remove("token_type_ids")
    config = json.loads(file.read_text(encoding="utf-8"))
    atomic.write_json(file, {**config, "model_input_names": names, "model_max_length": encoder.longest})


def save(
    encoder: TextEncoder, path: str | os.PathLike[str], format: Literal["clozeworks", "hf"] = "clozeworks"
) -> Path:
    """Write a model directory, whole or not at all; `hf` is what `transformers` loads with from_pretrained."""
    if format not in ("clozeworks", "hf"):
        raise InputError("format", format, "clozeworks or hf is needed", "choose one")
    with atomic.directory(path) as folder:
        if format == "hf":
            pad = encoder.tokenizer.pad if encoder.tokenizer else None
            huggingface.write(folder, encoder.model, encoder.recipe, pad)
        else:
            files.write(folder, encoder.model, encoder.recipe)
        if encoder.tokenizer is not None:
            encoder.tokenizer.save(folder)
            if format == "hf":
                _tell_tokenizer(folder / "tokenizer_config.json", encoder)
        card.write(folder, encoder.recipe, encoder.facts, format)
    return Path(path)
