"""Layouts of texts for encoders that were fine-tuned elsewhere."""

import clozeworks as cw
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import fitting, frame_of
from clozeworks.tasks.frame import Frame


def test_specials_that_a_tokenizer_lacks_were_in_no_text():
    tokenizer = Tokenizer.train(["a b c"], vocab=64)
    inner = tokenizer.inner
    inner.post_processor = None  # pyright: ignore[reportAttributeAccessIssue]
    bare = Tokenizer(inner)
    bare.names = {"unk": "[UNK]", "sep": "[SEP]"}
    for name, between in (("gpt_mini", ()), ("bert_tiny", ("[SEP]",))):
        frame = frame_of(cw.recipe(name), bare, whole=False)
        assert (frame.opening, frame.between, frame.closing) == ((), between, ("[SEP]",))
    whole = frame_of(cw.recipe("gpt_mini"), bare)
    assert (whole.opening, whole.between) == (("_start_",), ("_delimiter_",))


def test_a_frame_has_what_the_encoder_tells_apart():
    assert fitting(Frame(), cw.recipe("bert_tiny")).segments
    assert not fitting(Frame(), cw.recipe("roberta_mini")).segments
    long = fitting(Frame(), cw.recipe("longformer_base"))
    assert (long.marks, long.length) == (True, 4096)
    assert fitting(Frame(summary="last"), cw.recipe("xlnet_mini")).own_segment == 2
