"""A model with its tokenizer and its recipe: what users hold in their hands."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.batch import Batch
from clozeworks.core.context import Context
from clozeworks.core.errors import InputError
from clozeworks.core.examples import Vocabulary
from clozeworks.core.spec import Spec
from clozeworks.core.token_info import PADDING, DocumentLayout, TokenInfo
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.bundle import Bundle, Format, read_bundle, write_bundle
from clozeworks.exchange.char_vocab import extend_vocabulary
from clozeworks.exchange.onnx.write import Precision
from clozeworks.inference import features
from clozeworks.inference.beam_search import BeamSearch, beam_search
from clozeworks.inference.generation import IncrementalReader, Sampling, sample
from clozeworks.inference.packing import ROW, can_pack, pack_by_length
from clozeworks.inference.predict import predict
from clozeworks.inference.translate import Alignment, Translation, align, translate
from clozeworks.nn.pooling import Pooling, PoolingMode, pool_tokens, unpack
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.two_stream import TwoStreamLayer
from clozeworks.objectives.losses.adaptive_next_token import AdaptiveNextTokenLayer
from clozeworks.objectives.losses.masked_lm import MaskedLMLayer
from clozeworks.objectives.losses.next_token import NextTokenLayer
from clozeworks.objectives.losses.sentence_relation import SentenceRelationLayer
from clozeworks.objectives.segments import PairStream
from clozeworks.tasks.task import TaskLayer

Guess = dict[str, Any]
POOL = 4096  # texts that are sorted by length together; more would be no faster
LanguageHead = MaskedLMLayer | NextTokenLayer | AdaptiveNextTokenLayer


@dataclass(slots=True)
class Outputs:
    """What `TextEncoder.forward` gives, by the names people know."""

    last_hidden_state: Tensor  # [B, L, D]
    hidden_states: tuple[Tensor, ...]  # embeddings, then each layer
    logits: Tensor | None = None  # [B, L, V] of a language-model head; without one, those of the task's
    pooler_output: Tensor | None = None  # [B, D]
    seq_relationship_logits: Tensor | None = None  # [B, 2]
    mc_logits: Tensor | None = None  # [B], of each row as an option of its question
    start_logits: Tensor | None = None  # [B, L], of an answer's first token
    end_logits: Tensor | None = None  # [B, L], and of its last one


@dataclass(slots=True)
class TextEncoder(Bundle):
    """A loaded model at work: what `clozeworks.load` gives."""

    @property
    def longest(self) -> int:
        return self.recipe.length

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def kind(self) -> Literal["full", "causal"]:
        """Whom a token that the encoder reads sees: all, or those before it."""
        return self.recipe.reading

    @property
    def language_head(self) -> "LanguageHead | None":
        """The head that gives words their scores, where it reads what the encoder gives."""
        if self.recipe.decoder is not None:
            return None
        heads = (self.model.head(name) for name in ("masked_lm", "next_token", "permuted_lm"))
        return next((head for head in heads if isinstance(head, LanguageHead)), None)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        logits: bool = True,
        mc_token_ids: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
    ) -> Outputs:
        """Rows of ids, as `transformers` takes them: any padding, masked as keys and never as queries.

        `mc_token_ids` [B] are the places of the tokens that a head for choices scores; None: the last ones.
        `global_attention_mask` [B, L] is 1 for tokens that see and are seen from afar; None: those that the task marks.
        """
        input_ids = self._check_ids(input_ids.to(self.device))
        attention_mask, token_type_ids, mc_token_ids, global_attention_mask = (
            None if each is None else each.to(self.device)
            for each in (attention_mask, token_type_ids, mc_token_ids, global_attention_mask)
        )
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        position, real = self._positions(input_ids), torch.where(mask.bool(), 0, PADDING)
        query = TokenInfo.make(position, torch.zeros_like(input_ids), self.kind, token_type_ids)
        task = self.recipe.task
        if self._windowed:
            if global_attention_mask is None and task is not None and task.template.marks:
                global_attention_mask = task.marks(input_ids, self.tokenizer)
            context = self._near(real, token_type_ids, global_attention_mask)
        elif global_attention_mask is not None:
            needed = "no layer of the model has global tokens"
            raise InputError("global_attention_mask", "a mask", needed, "leave it out, or convert the model")
        else:
            memory = TokenInfo.make(position, real, self.kind, token_type_ids)
            stack = self.recipe.encoder.stack
            # Some mixers have one side, and some look for their queries behind rows of zeros: padding sees padding.
            regular = stack.initial_memory == "zeros" or any("rows" not in mixer.takes for mixer in stack.mixers())
            query = memory if regular else query
            context = Context.make(query, memory, self.kind, offset=0 if regular else None)
        firsts = torch.arange(len(input_ids), device=self.device) * input_ids.shape[1]
        with torch.no_grad() if not self.model.training else torch.enable_grad():
            hidden = self.model.encoder(input_ids, query, context, firsts, layers=True)
            hidden.real = mask.bool()
            out = Outputs(hidden.last, hidden.layers, pooler_output=hidden.pooled)
            head, pair = self.language_head, self.model.head("sentence_pair")
            if logits and head is not None:
                out.logits = head.logits(hidden.last)
            if isinstance(pair, SentenceRelationLayer) and hidden.pooled is not None:
                out.seq_relationship_logits = pair.logits(hidden.pooled)
            decides = None if task is None else self.model.head(task.name)
            if isinstance(decides, TaskLayer):
                batch = self._as_batch(input_ids, mask, query, firsts, mc_token_ids)
                for name, scores in decides.named_logits(hidden, batch).items():
                    setattr(out, name, scores if getattr(out, name) is None else getattr(out, name))
        return out

    __call__ = forward

    def _check_ids(self, input_ids: Tensor) -> Tensor:
        """The same ids; refused where the model has no such token or too few positions."""
        width, vocab = input_ids.shape[1], self.recipe.encoder.vocab
        if width > self.longest:
            needed = f"the model has {self.longest} positions"
            raise InputError("input_ids", f"{width} tokens", needed, "shorten the text")
        if input_ids.numel() and not 0 <= int(input_ids.min()) <= int(input_ids.max()) < vocab:
            given = f"ids from {int(input_ids.min())} to {int(input_ids.max())}"
            needed = f"the model has tokens 0 to {vocab - 1}"
            raise InputError("input_ids", given, needed, "use the model's own tokenizer")
        return input_ids

    def _as_batch(self, tokens: Tensor, mask: Tensor, side: TokenInfo, firsts: Tensor, at: Tensor | None) -> Batch:
        """Rows as heads see them, a document each; `at`: the place of the token that stands for it."""
        rows, width = tokens.shape
        number = torch.arange(rows, device=tokens.device)[:, None]
        side = dataclasses.replace(side, document=torch.where(mask.bool(), number, PADDING))
        place = torch.arange(width, device=tokens.device)
        last = torch.where(mask.bool(), place, 0).amax(1) if at is None else at
        return Batch(tokens, side, self.kind, DocumentLayout((), (), rows, width), firsts, firsts + last)

    @property
    def _windowed(self) -> bool:
        return any(getattr(mixer, "window", None) is not None for mixer in self.recipe.encoder.stack.mixers())

    def _near(self, document: Tensor, segment: Tensor | None, marked: Tensor | None) -> Context:
        """What windows see: distances are those of places in the row, and padding is a document of its own."""
        place = torch.arange(document.shape[1], device=document.device).expand_as(document)
        side = TokenInfo.make(place, document, self.kind, segment)
        if marked is None:
            return Context.make(side, side, self.kind)
        if marked.shape != document.shape:
            given, needed = list(marked.shape), f"a number for each token, {list(document.shape)}, is needed"
            raise InputError("global_attention_mask", given, needed, "give 1 for a global token and 0 for others")
        marked = marked.bool() & (document != PADDING)
        side = dataclasses.replace(side, marked=marked)
        return Context.make(side, side, self.kind, most_marked=int(marked.sum(1).max()))

    def _positions(self, input_ids: Tensor) -> Tensor:
        positions = self.recipe.encoder.embed.positions
        if isinstance(positions, LearnedPositions) and positions.offset:
            # Models that count from the padding id skip padding; the padding itself gets the row before position 0.
            real = (input_ids != positions.offset - 1).long()
            return torch.cumsum(real, 1) * real - 1
        return torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)

    def fill_mask(self, text: str, top: int = 5) -> list[Any]:
        """The most likely words for each mask token: a list of guesses, or one list a mask if there are several."""
        if not isinstance(text, str):
            raise InputError("text", f"a {type(text).__name__}", "one text is needed", "call it for each of several")
        tokenizer, head = self._tokenizer(), self.language_head
        if head is None or head is self.model.head("next_token"):
            needed = "a model pretrained with MaskedLM or PermutedLM is needed"
            raise InputError(self.recipe.name, "no masked-LM head", needed, "pretrain it")
        mask = tokenizer.need("mask")
        written = tokenizer.names["mask"]
        ids, begin = self.add_special_tokens(tokenizer.encode([text], specials=True)[0].ids.tolist())
        holes = [at for at, token in enumerate(ids) if token == mask]
        if not holes:
            needed = f"at least one {written} is needed"
            raise InputError("text", repr(text), needed, f"write {written} where a word is missing")
        if len(ids) > self.longest:
            raise InputError("text", f"{len(ids)} tokens", f"the model has {self.longest} positions", "shorten it")
        with torch.no_grad():
            chances = head.logits(self._at_holes(ids, holes)).softmax(-1)
        best = chances.topk(min(top, chances.shape[-1]))
        filled_masks = []
        for at, scores, tokens in zip(holes, best.values.tolist(), best.indices.tolist(), strict=True):
            guesses = []
            for score, token in zip(scores, tokens, strict=True):
                filled = [*ids[begin:at], token, *ids[at + 1 : begin - 2]]
                text = tokenizer.decode(filled, skip_specials=False)
                guesses.append({"token": self.word(token), "score": score, "id": token, "text": text})
            filled_masks.append(guesses)
        return filled_masks if len(filled_masks) > 1 else filled_masks[0]

    def add_special_tokens(self, ids: list[int]) -> tuple[list[int], int]:
        """A text between its specials, and where it begins there."""
        tokenizer = self._tokenizer()
        cls, sep = tokenizer.need(self.recipe.opener), tokenizer.need("sep")
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
        tokens = torch.tensor([ids], device=self.device)
        if not isinstance(self.model.encoder.stack, TwoStreamLayer):
            return self.forward(tokens, token_type_ids=self._segments(tokens), logits=False).last_hidden_state[0, holes]
        order = torch.zeros_like(tokens)
        order[0, holes] = 1  # after all others, so that nobody sees what stands there
        side = TokenInfo(self._positions(tokens), torch.zeros_like(tokens), order, order, self._segments(tokens))
        targets = torch.tensor(holes, device=self.device)
        hidden = self.model.encoder(tokens, side, Context.make(side, side, "order", targets=targets))
        assert hidden.query_stream is not None
        return hidden.query_stream

    def generate(
        self,
        prompt: str = "",
        tokens: int = 50,
        how: Sampling | None = None,
        *,
        beams: int = 1,
        penalty: float = 1.0,
        count: int = 1,
        seed: int = 0,
    ) -> list[dict[str, Any]]:
        """Continuations of a text by a model that reads one way: drawn as `how` says, or the best of several beams."""
        if self.recipe.decoder is not None:
            needed = "it writes from a source, and continues nothing else"
            raise InputError(self.recipe.name, "a model with a decoder", needed, "use clozeworks translate")
        tokenizer = self._tokenizer()
        given = tokenizer.encode([prompt])[0].ids.tolist()
        segments = self.recipe.objective.segments
        border = tokenizer.sep if hasattr(segments, "streams") else tokenizer.cls  # what a document begins after
        start = [*([] if border is None else [border]), *given]
        if not start:
            raise InputError("prompt", "nothing", "this model needs a first token", "give a word to begin with")
        if len(start) >= self.longest:
            raise InputError("prompt", f"{len(start)} tokens", f"the model has {self.longest} positions", "shorten it")
        reader = IncrementalReader(self.model, length=segments.length)
        most = min(tokens, self.longest - len(start))
        if beams > 1:
            continuations = beam_search(reader, start, most, BeamSearch(beams, penalty), end=tokenizer.sep)[:count]
        else:
            continuations = sample(reader, start, most, how or Sampling(), end=tokenizer.sep, count=count, seed=seed)
        return [
            {"text": tokenizer.decode([*given, *one.tokens]), "tokens": one.tokens, "score": one.score}
            for one in continuations
        ]

    def translate(self, texts: Sequence[str] | str, *, beams: int = 4, penalty: float = 0.6) -> list[str]:
        """What a model with a decoder writes from each text, in the order given."""
        return [one.text for one in self.translations(texts, beams=beams, penalty=penalty)]

    def translations(self, texts: Sequence[str] | str, **more: Any) -> list[Translation]:
        """The same with tokens and scores; `more` goes to `clozeworks.inference.translate.translate`."""
        if self.recipe.decoder is not None:
            more = {"start": self.recipe.decoder.start, "end": self.recipe.decoder.end, **more}
        return translate(self.model, self._tokenizer(), features.list_texts(texts), longest=self.longest, **more)

    def alignment(self, translation: Translation) -> Alignment:
        """Where the decoder looked in the source while it wrote this translation."""
        decoder = self.recipe.decoder
        ends = {} if decoder is None else {"start": decoder.start, "end": decoder.end}
        return align(self.model, self._tokenizer(), translation, longest=self.longest, **ends)

    def predict(self, given: Any, columns: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """What a fine-tuned model answers to a text, to several, or to rows: dicts, a frame, a dataset, a Path.

        One answer for each, in the order given: label and scores, tags, a span, as the task has it.
        """
        given = [given] if isinstance(given, str | dict) else given
        pieces = predict(self.model, self.recipe, self._tokenizer(), given, columns)
        return [answer for _, some in pieces for answer in some]

    def word(self, token: int) -> str:
        """A token as it is shown: its text, or its own name where it has none."""
        tokenizer = self._tokenizer()
        return tokenizer.decode([token], skip_specials=False).strip() or tokenizer.token(token)

    def encode(
        self,
        texts: Sequence[str] | str,
        pool: PoolingMode | None = None,
        batch_tokens: int = 8192,
        normalise: bool | None = None,
    ) -> np.ndarray:
        """Sentence vectors [n, D] in the order given; texts of like length share a batch, long ones are cut.

        `pool` and `normalise` are the recipe's where they are not given; one that says nothing makes means.
        """
        made = self.recipe.pooling or Pooling()
        pool, normalise = pool or made.mode, made.normalise if normalise is None else normalise
        if pool not in get_args(PoolingMode) or (pool == "pooled" and self.model.encoder.pooler is None):
            needed = (
                "the model has no pooler"
                if pool == "pooled"
                else f"one of {', '.join(get_args(PoolingMode))} is needed"
            )
            raise InputError("pool", pool, needed, "use mean or first")
        most = min(made.length or self.longest, self.longest) - 2
        texts = features.list_texts(texts)
        out = np.zeros((len(texts), self.model.encoder.width), dtype=np.float32)
        for begin in range(0, len(texts), POOL):
            some = texts[begin : begin + POOL]
            own = self._with_words([made.prompt, *some])
            known = own._tokenizer().encode([made.prompt + text for text in some])
            rows = [own.add_special_tokens(each.ids[:most].tolist())[0] for each in known]
            for chosen, pooled in own._pooled(rows, pool, batch_tokens):
                vectors = F.normalize(pooled) if normalise else pooled
                out[[begin + n for n in chosen]] = vectors.cpu().numpy()
        return out

    def _pooled(
        self, rows: list[list[int]], pool: PoolingMode, batch_tokens: int
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Some of the rows and a vector for each, batch by batch: side by side where that costs no more."""
        if self.device.type != "cpu" or not can_pack(self.recipe.encoder.stack) or self.model.training:
            for chosen, ids, mask in features.pad_by_length(rows, batch_tokens, self._tokenizer().pad or 0):
                result = self.forward(ids, mask, self._segments(ids), logits=False)
                yield chosen, pool_tokens(result.last_hidden_state, mask.to(self.device), result.pooler_output, pool)
            return
        for chosen, batch in pack_by_length(rows, min(batch_tokens, ROW), self.kind):
            self._check_ids(batch.tokens[:, : batch.layout.longest])
            side = dataclasses.replace(batch.token_info, segment=self._segments(batch.tokens))
            with torch.no_grad():
                firsts = batch.firsts if pool == "pooled" else None
                hidden = self.model.encoder(batch.tokens, side, batch.replace(token_info=side).context(), firsts)
                assert batch.lasts is not None
                last, mask = unpack(hidden.last, batch.firsts, batch.lasts)
                yield chosen, pool_tokens(last, mask, hidden.pooled, pool)

    def features(self, sentences: Sequence[Sequence[str]], batch_tokens: int = 8192) -> list[np.ndarray]:
        """What every layer says of every word, the way in first: of each sentence, a list of words, [layers, words, D].

        A word is its first piece. Where the model reads characters, words that it never met are read as written.
        """
        features.check_words(sentences)
        own = self._with_words([word for words in sentences for word in words])
        rows, places = features.place_words(own._tokenizer(), sentences, own.add_special_tokens, self.longest)
        vectors = [np.zeros((0, 0, 0), np.float32)] * len(rows)
        for chosen, ids, mask in features.pad_by_length(rows, batch_tokens, own._tokenizer().pad or 0):
            result = own.forward(ids, mask, own._segments(ids), logits=False)
            layers = features.stack_layers(result.hidden_states, self.recipe.name)
            for at, n in enumerate(chosen):
                vectors[n] = layers[:, at, places[n]]
        return vectors

    def _with_words(self, texts: Sequence[str]) -> "TextEncoder":
        """With every word of the texts, where the model reads characters."""
        model, tokenizer = extend_vocabulary(self.model, self._tokenizer(), texts)
        if model is self.model:
            return self
        encoder = dataclasses.replace(self.recipe.encoder, vocab=tokenizer.size)
        return TextEncoder(model, tokenizer, dataclasses.replace(self.recipe, encoder=encoder))

    def vocabulary(self) -> Vocabulary:
        return self._tokenizer().vocabulary()

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            needed = "text needs one"
            raise InputError(self.recipe.name, "a model without a tokenizer", needed, "put tokenizer.json beside it")
        return self.tokenizer


def load(path: str | os.PathLike[str], parts: Iterable[type[Spec]] = (), allow_pickle: bool = False) -> TextEncoder:
    """A run or one of its checkpoints, a model directory, or a Hugging Face directory of a supported family."""
    read = read_bundle(path, parts, allow_pickle)
    return TextEncoder(read.model, read.tokenizer, read.recipe, read.facts, read.unused)


def save(
    encoder: Bundle,
    path: str | os.PathLike[str],
    format: Format = "clozeworks",
    precision: Precision = "fp32",
    dimensions: int | None = None,
) -> Path:
    """Write a model directory, whole or not at all; `hf` is what `transformers` loads with from_pretrained,
    `sentence-transformers` that with the files of the library of this name, and `onnx` what onnxruntime runs, of int8
    weights where `precision` says so. `static` and `model2vec` are a table of token vectors of so many `dimensions`."""
    return write_bundle(encoder, path, format, precision, dimensions)
