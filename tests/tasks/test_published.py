"""Beside `transformers`: two texts as its tokenizers lay them out, and what its classes make of them."""

from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch

from clozeworks.data.batches.labelled import make_batch
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.text_encoder import load
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from clozeworks.starts.transfer import transfer
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.summary import Summary, choose_summary
from clozeworks.train.finetune.batches import predict_words
from clozeworks.train.finetune.recipe import make_finetune_recipe

transformers = pytest.importorskip("transformers")

WORDS = ["a", "b", "c", "d", "e"]
TEXTS = [("a b c", "d e"), ("e", "d c b a"), ("b a", "b"), ("c d e a b", "a")]
ROWS = Table("rows", [{"text_a": a, "text_b": b, "label": "yes" if n % 2 else "no"} for n, (a, b) in enumerate(TEXTS)])


def pieces(*specials: str) -> list[tuple[str, float]]:
    return [(name, 0.0) for name in specials] + [(f"▁{word}", -1.0 - n / 10) for n, word in enumerate(WORDS)]


def roberta():
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "Ġ", *WORDS, *(f"Ġ{word}" for word in WORDS)]
    vocab = {name: at for at, name in enumerate(names)}
    return transformers.RobertaTokenizer(vocab=vocab, merges=[("Ġ", word) for word in WORDS])


def bert():
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    return transformers.BertTokenizer(vocab={name: at for at, name in enumerate(names)})


def albert():
    return transformers.AlbertTokenizer(vocab=pieces("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"))


def xlnet():
    return transformers.XLNetTokenizer(
        vocab=pieces("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
    )


@pytest.mark.parametrize(
    ("family", "theirs"),
    [("bert_tiny", bert), ("roberta_mini", roberta), ("longformer_mini", roberta), ("albert_mini", albert),
     ("distilbert_mini", bert), ("xlnet_base", xlnet), ("xlnet_mini_memory", xlnet)],
)  # fmt: skip
def test_two_texts_are_laid_out_as_theirs(family: str, theirs, tmp_path: Path):
    theirs = theirs()
    theirs.save_pretrained(tmp_path)
    ours, made = Tokenizer.load(tmp_path), recipe(family)
    template = infer_template(made, ours)
    examples = Pair(template=template).examples(ROWS, ours, truth=False).examples
    for at, (a, b) in enumerate(TEXTS):
        expected = theirs(a, b, return_token_type_ids=True)
        mine = slice(examples.first[at], examples.first[at + 1])
        assert examples.tokens[mine].tolist() == expected["input_ids"]
        segments = expected["token_type_ids"] if template.segments else [0] * len(expected["input_ids"])
        assert examples.segment[mine].tolist() == segments


def test_the_last_token_sums_up_as_in_their_class(tmp_path: Path):
    """Packed rows of several examples here, one a row padded on the left there: the same logits and loss."""
    theirs = xlnet()
    theirs.save_pretrained(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    shape = {"vocab_size": tokenizer.size, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "num_labels": 2}
    torch.manual_seed(0)
    model = transformers.XLNetForSequenceClassification(transformers.XLNetConfig(**shape)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    model.save_pretrained(tmp_path / "model")
    source = load(tmp_path / "model")
    template = infer_template(source.recipe, tokenizer)
    summary = choose_summary(source.recipe, template, False)
    assert summary == Summary("last", "own", "tanh")
    task = Pair(template=template, summary=summary).with_labels(ROWS)
    ours = build(make_finetune_recipe(source.recipe, task, len(ROWS))).eval()
    transfer(source.model, ours)
    head = ours.head("pair")
    with torch.no_grad():
        for mine, other in ((head.summary.dense, model.sequence_summary.summary), (head.out, model.logits_proj)):
            mine.weight.copy_(other.weight)
            mine.bias.copy_(other.bias)
    labelled = task.examples(ROWS, tokenizer)
    (batch,) = make_batch(labelled, np.arange(len(ROWS)), "full", tokenizer.filler)
    assert len(batch.tokens) == 1
    both = [a for a, _ in TEXTS], [b for _, b in TEXTS]
    given = theirs(*both, padding=True, return_tensors="pt", return_token_type_ids=True)
    assert given["attention_mask"][1, 0] == 0
    truth = torch.from_numpy(labelled.examples.fields["class_label"])
    with torch.no_grad():
        output = ours(batch)
        expected = model(**given, labels=truth)
        alone = model(**{**given, "token_type_ids": None})
    logits = head.logits(output.hidden, batch)[np.argsort(batch.index)]
    torch.testing.assert_close(logits, expected.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(output.losses["pair"] / len(ROWS), expected.loss, rtol=0, atol=1e-5)
    assert (alone.logits - expected.logits).abs().max() > 1e-4  # segments matter to it


def test_choices_and_words_as_in_their_class(tmp_path: Path):
    """Its class scores options and predicts words at once: both losses, each a mean, padding aside."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: n for n, w in enumerate(["<unk>", *WORDS])}, "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = Tokenizer(inner).add_specials(["_start_", "_delimiter_", "_classify_"])
    shape = {"vocab_size": tokenizer.size, "n_positions": 24, "n_embd": 32, "n_layer": 2, "n_head": 4}
    torch.manual_seed(0)
    model = transformers.OpenAIGPTDoubleHeadsModel(transformers.OpenAIGPTConfig(**shape)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    model.save_pretrained(tmp_path)
    ours = load(tmp_path)
    task = ours.recipe.task
    rows = Table("rows", [
        {"context": "a b c d", "question": "e", "choices": ["a", "b c"], "answer": 1},
        {"context": "c", "question": "b a", "choices": ["d e a", "d"], "answer": 0},
    ])  # fmt: skip
    labelled = task.examples(rows, tokenizer)
    predict_words(labelled)
    (batch,) = make_batch(labelled, np.arange(2), "causal", tokenizer.filler)
    lengths, first = labelled.examples.lengths, labelled.examples.first
    ids = torch.zeros(4, int(lengths.max()), dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for row in range(4):
        mine = torch.from_numpy(labelled.examples.tokens[first[row] : first[row + 1]].astype(np.int64))
        ids[row, : len(mine)] = labels[row, : len(mine)] = mine
    with torch.no_grad():
        expected = model(
            input_ids=ids.view(2, 2, -1),
            labels=labels.view(2, 2, -1),
            mc_token_ids=torch.from_numpy(lengths - 1).view(2, 2),
            mc_labels=torch.tensor([1, 0]),
        )
        output = ours.model(batch)
    counts = ours.model.count(batch)
    torch.testing.assert_close(output.losses["choice"] / counts["choice"], expected.mc_loss, rtol=0, atol=1e-5)
    torch.testing.assert_close(output.losses["next_token"] / counts["next_token"], expected.loss, rtol=0, atol=1e-5)
