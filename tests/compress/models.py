"""Small models of every family, with random weights in all of their tensors, and data that they can read."""

import copy
import dataclasses
import random

import torch

from clozeworks.compress import Data
from clozeworks.core import spec
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.positions import AxialPositions
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.tag import Tag

WORDS = ("fox", "hen", "stone", "tree", "house", "rain", "river", "road", "small", "old", "red", "sees", "runs", "near")
RARE = ("gemstone", "whirlpool", "xylophone")  # in what a tokenizer was trained on, and in no text to keep
FAMILIES = {
    "bert_tiny": "wordpiece",
    "roberta_mini": "bytes",
    "albert_mini": "unigram",
    "spanbert_mini": "wordpiece",
    "distilbert_mini": "wordpiece",
    "cloze_tiny": "wordpiece",
    "gpt_mini": "bpe",
    "transformer_xl_mini": "words",
    "adaptive_span_mini": "words",
    "xlnet_mini": "unigram",
    "longformer_mini": "bytes",
    "reformer_mini": "bpe",
    "elmo_mini": "words",
    "awd_lstm_mini": "words",
    "transformer_mini": "bpe",
    "lite_transformer_mini": "bpe",
    "lite_transformer_lm_mini": "words",
}
TASKS = ("classify", "tag")


def sentences(count: int = 60, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) + "." for _ in range(count)]


def documents(count: int = 20, seed: int = 0) -> list[str]:
    """Of three sentences each."""
    each = [sentence.capitalize() for sentence in sentences(3 * count, seed)]
    return [" ".join(each[at : at + 3]) for at in range(0, len(each), 3)]


def shrink(made: Recipe, width: int = 32, heads: int = 4, inner: int = 48, depth: int = 4) -> Recipe:
    """Narrower, and shorter texts."""
    for _, part in spec.walk(made):
        if isinstance(part, FeedForward):
            part.inner = inner
        elif isinstance(part, Embed) and part.width is not None:
            part.width = width // 2
        elif isinstance(part, AxialPositions):
            part.widths = (width // 4, width - width // 4)
        elif hasattr(part, "heads"):
            part.heads = heads  # pyright: ignore[reportAttributeAccessIssue]
    made.encoder.width, made.encoder.stack.depth = width, depth
    if made.decoder is not None:
        made.decoder.stack.depth = depth
    made.start = ()
    return made


def make_tokenizer(kind: str) -> Tokenizer:
    return Tokenizer.train([*documents(60), " ".join(RARE * 9)], kind, vocab=400)


def build_model(made: Recipe, tokenizer: Tokenizer, seed: int = 0, more: int = 0) -> TextEncoder:
    """With biases and norms that say something, too, and `more` rows of words than there are tokens."""
    made.encoder.vocab = tokenizer.size + more
    model = build(made).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return TextEncoder(model, tokenizer, made)


def make_model(family: str) -> TextEncoder:
    return build_model(shrink(recipe(family)), make_tokenizer(FAMILIES[family]))


def make_task(name: str) -> TextEncoder:
    """A model that tells texts or words apart."""
    made, tokenizer = shrink(recipe("bert_tiny")), make_tokenizer("wordpiece")
    template = dataclasses.replace(infer_template(made, tokenizer), length=24)
    labels = ("warm", "cold") if name == "classify" else ("O", "B-X", "I-X")
    task = (Classify if name == "classify" else Tag)(template=template, labels=labels)
    made.objective = dataclasses.replace(made.objective, losses=(task,), corruption=None)
    return build_model(made, tokenizer)


def make_table(name: str) -> Table:
    texts = sentences(40, 3)
    if name == "classify":
        return Table("rows", [{"text": text, "label": "warm" if "fox" in text else "cold"} for text in texts])
    words = [text.rstrip(".").split() for text in texts]
    return Table("rows", [{"tokens": row, "tags": ["B-X" if w == "fox" else "O" for w in row]} for row in words])


def make_data(name: str) -> Data:
    if name in TASKS:
        return Data(table=make_table(name), tokens=1024)
    if "transformer_mini" in name:  # source and target
        return Data(texts=[text.replace(". ", ".\n", 1).replace(". ", " ") for text in documents()], tokens=1024)
    return Data(texts=documents(), tokens=1024)


def copy_weights(bundle: TextEncoder) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in bundle.model.named_parameters()}


def copy_bundle(bundle: TextEncoder) -> TextEncoder:
    return dataclasses.replace(bundle, model=copy.deepcopy(bundle.model), recipe=copy.deepcopy(bundle.recipe))
