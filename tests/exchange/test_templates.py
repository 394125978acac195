"""Layouts of texts for encoders that were fine-tuned elsewhere."""

import clozeworks as cw
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import fitting, infer_template
from clozeworks.tasks.template import InputTemplate


def test_specials_that_a_tokenizer_lacks_were_in_no_text():
    tokenizer = Tokenizer.train(["a b c"], vocab=64)
    inner = tokenizer.inner
    inner.post_processor = None  # pyright: ignore[reportAttributeAccessIssue]
    bare = Tokenizer(inner)
    bare.names = {"unk": "[UNK]", "sep": "[SEP]"}
    for name, between in (("gpt_mini", ()), ("bert_tiny", ("[SEP]",))):
        template = infer_template(cw.recipe(name), bare, whole=False)
        assert (template.opening, template.between, template.closing) == ((), between, ("[SEP]",))
    whole = infer_template(cw.recipe("gpt_mini"), bare)
    assert (whole.opening, whole.between) == (("_start_",), ("_delimiter_",))


def test_a_frame_has_what_the_encoder_tells_apart():
    assert fitting(InputTemplate(), cw.recipe("bert_tiny")).segments
    assert not fitting(InputTemplate(), cw.recipe("roberta_mini")).segments
    long = fitting(InputTemplate(), cw.recipe("longformer_base"))
    assert (long.marks, long.length) == (True, 4096)
    assert fitting(InputTemplate(summary="last"), cw.recipe("xlnet_mini")).own_segment == 2
