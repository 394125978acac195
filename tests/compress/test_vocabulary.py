"""A model with the tokens of some texts alone gives these the same vectors, to the bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clozeworks as cw
from clozeworks.compress import Data, TrimVocabulary
from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.nn.words import Adaptive
from clozeworks.objectives.losses.adaptive_next_token import AdaptiveNextToken
from tests.compress import models

FAMILIES = ("bert_tiny", "roberta_mini", "albert_mini", "gpt_mini", "cloze_tiny", "xlnet_mini", "transformer_xl_mini")
MADE = {name: models.make_model(name) for name in FAMILIES}

word = st.sampled_from((*models.WORDS, "Ω", "Foxes", "hens,"))
sentence = st.lists(word, min_size=1, max_size=8).map(" ".join)


@pytest.mark.parametrize("name", FAMILIES)
@given(texts=st.lists(sentence, min_size=1, max_size=4))
@settings(max_examples=6)
def test_texts_that_were_kept_have_the_same_vectors(name: str, texts: list[str]):
    bundle = MADE[name]
    texts = [f"fox {text}" for text in texts]  # unknown words alone leave nothing
    small = TrimVocabulary().apply(bundle, Data(texts=texts))
    assert small.recipe.encoder.vocab == small.tokenizer.size < bundle.tokenizer.size
    assert np.array_equal(bundle.encode(texts), small.encode(texts))
    ids, own = (each.tokenizer.encode([texts[0]])[0].ids for each in (bundle, small))
    assert [bundle.tokenizer.token(index) for index in ids] == [small.tokenizer.token(index) for index in own]
    before, after = (each.forward(torch.from_numpy(row)[None].long()) for each, row in ((bundle, ids), (small, own)))
    assert torch.equal(before.last_hidden_state, after.last_hidden_state)
    if before.logits is not None:
        kept = [bundle.tokenizer.id(small.tokenizer.token(index)) for index in range(small.tokenizer.size)]
        torch.testing.assert_close(after.logits, before.logits[..., kept], atol=1e-5, rtol=1e-5)


def test_parameters_to_the_unit():
    """A token of a model of width D has a row of D numbers, and one in the head's bias."""
    bundle = MADE["bert_tiny"]
    small = TrimVocabulary().apply(bundle, models.make_data("bert_tiny"))
    gone = bundle.tokenizer.size - small.tokenizer.size
    assert gone > 100
    assert cw.count_parameters(bundle.recipe) - cw.count_parameters(small.recipe) == gone * (32 + 1)


def test_rows_for_nobody_go():
    """Published tables often have more rows than there are tokens."""
    bundle = MADE["bert_tiny"]
    made = models.shrink(cw.recipe("bert_tiny"))
    padded = models.build_model(made, bundle.tokenizer, more=40)
    assert padded.recipe.encoder.vocab == bundle.tokenizer.size + 40
    small = TrimVocabulary().apply(padded, models.make_data("bert_tiny"))
    assert small.recipe.encoder.vocab == small.tokenizer.size
    assert np.array_equal(padded.encode(models.documents(3)), small.encode(models.documents(3)))


def test_a_count_asks_for_frequent_tokens():
    texts = ["fox fox hen", "fox tree"]
    bundle = MADE["transformer_xl_mini"]
    once, often = (TrimVocabulary(least).apply(bundle, Data(texts=texts)).tokenizer for least in (1, 3))
    assert {"fox", "hen", "tree"} <= {once.token(index) for index in range(once.size)}
    assert often.id("fox") is not None
    assert often.id("hen") is None
    with pytest.raises(InputError, match="no token of the text 9 times; nothing would be left"):
        TrimVocabulary(9).apply(bundle, Data(texts=texts))


def test_rows_of_a_task_count_as_the_task_reads_them():
    for name in models.TASKS:
        bundle, data = models.make_task(name), models.make_data(name)
        small = TrimVocabulary().apply(bundle, data)
        assert [*bundle.predict(data.table.rows)] == [*small.predict(data.table.rows)]


def test_prepared_text_counts_and_is_read_under_its_new_numbers(tmp_path):
    bundle = MADE["bert_tiny"]
    prepare(iter(models.documents(40)), tmp_path / "data", tokenizer=bundle.tokenizer, heldout=0)
    data = Data(corpus=Corpus.open(tmp_path / "data"), tokens=512)
    small = TrimVocabulary().apply(bundle, data)
    assert np.array_equal(bundle.encode(models.documents(5)), small.encode(models.documents(5)))
    old, new = next(data.batches(bundle)), next(data.batches(small))
    batches = ((bundle, old), (small, new))
    names = [[each.tokenizer.token(index) for index in batch.labels.tolist()] for each, batch in batches]
    assert names[0] == names[1], "the same words are asked for"


def test_refusals():
    bundle = MADE["bert_tiny"]
    bare = type(bundle)(bundle.model, None, bundle.recipe)
    with pytest.raises(InputError, match="a model without a tokenizer"):
        TrimVocabulary().apply(bare, Data(texts=["fox"]))
    with pytest.raises(InputError, match="nothing would be left"):
        TrimVocabulary().apply(bundle, Data())
    larger = type(bundle)(bundle.model, bundle.tokenizer.add_specials(["[NEW]"]), bundle.recipe)
    with pytest.raises(InputError, match="is it the tokenizer of this model"):
        TrimVocabulary().apply(larger, Data(texts=["fox"]))
    small = TrimVocabulary().apply(bundle, models.make_data("bert_tiny"))
    with pytest.raises(InputError, match="the text has all of the"):
        TrimVocabulary().apply(small, models.make_data("bert_tiny"))
    made = models.shrink(cw.recipe("transformer_xl_mini"))
    made.encoder.embed.words, made.objective.losses = Adaptive((10,)), (AdaptiveNextToken(),)
    clusters = models.build_model(made, models.make_tokenizer("words"))
    with pytest.raises(InputError, match="clusters of words are cut at numbers of ids"):
        TrimVocabulary().apply(clusters, Data(texts=["fox"]))


@pytest.mark.parametrize("name", ["bert_tiny", "roberta_mini"])
def test_a_trimmed_model_is_a_class_of_hugging_face(name: str, tmp_path):
    transformers = pytest.importorskip("transformers")
    texts = models.documents(5)
    small = TrimVocabulary().apply(MADE[name], Data(texts=texts))
    cw.save(small, tmp_path / "hf", format="hf")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    row = tokenizer(texts[0], return_tensors="pt")
    assert theirs.config.vocab_size == small.tokenizer.size
    with torch.no_grad():
        logits = theirs(input_ids=row["input_ids"], attention_mask=row["attention_mask"]).logits
    own = small.forward(row["input_ids"]).logits
    torch.testing.assert_close(logits, own, atol=1e-5, rtol=1e-4)
    assert row["input_ids"][0, 1:-1].tolist() == small.tokenizer.encode([texts[0]])[0].ids.tolist()
