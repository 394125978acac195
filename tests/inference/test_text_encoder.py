import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import processors

import clozeworks as cw
from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.block import Block
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.lightconv import LightConv
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from tests.conftest import SHARED

WORDS = "the cat sat on a mat while two dogs ran over green hills and saw nothing but rain, snow or sun"


def lines(count: int = 200) -> list[str]:
    words = WORDS.replace(",", "").split()
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(words, generator.integers(3, 15))) + "." for _ in range(count)]


@pytest.fixture(scope="module", params=["wordpiece", "bytes"])
def encoder(request) -> TextEncoder:
    tokenizer = Tokenizer.train(lines(), kind=request.param, vocab=400)
    r = recipe("bert_tiny" if request.param == "wordpiece" else "roberta_mini")
    r.encoder.vocab = tokenizer.size
    r.encoder.stack.depth = 2
    return TextEncoder(build(r).eval(), tokenizer, r)


def test_our_own_directory_gives_everything_back(encoder, tmp_path):
    save(encoder, tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        "README.md", "model.safetensors", "recipe.json", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    again = load(tmp_path / "model")
    assert again.recipe == encoder.recipe
    assert again.tokenizer is not None
    assert again.tokenizer.fingerprint == encoder.tokenizer.fingerprint
    ids = torch.randint(5, 50, (2, 9))
    assert torch.equal(again.forward(ids).last_hidden_state, encoder.forward(ids).last_hidden_state)


def test_fill_mask_ranks_words(encoder):
    mask = encoder.tokenizer.names["mask"]
    guesses = encoder.fill_mask(f"the cat {mask} on a mat.", top=4)
    assert len(guesses) == 4
    scores = [guess["score"] for guess in guesses]
    assert scores == sorted(scores, reverse=True)
    assert all(set(guess) == {"token", "score", "id", "text"} for guess in guesses)
    several = encoder.fill_mask(f"the {mask} sat on a {mask}.", top=2)
    assert [len(guesses) for guesses in several] == [2, 2]
    with pytest.raises(InputError, match="at least one"):
        encoder.fill_mask("the cat sat.")


def test_encode_is_the_masked_mean_whatever_the_batch(encoder):
    texts = lines(30)
    whole = encoder.encode(texts)
    assert whole.shape == (30, encoder.model.encoder.width)
    for text, vector in zip(texts[:5], whole, strict=False):
        ids = [encoder.tokenizer.cls, *encoder.tokenizer.encode([text])[0].ids.tolist(), encoder.tokenizer.sep]
        alone = encoder.forward(torch.tensor([ids])).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(vector, alone, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(texts, batch_tokens=20), whole, atol=1e-5)
    assert encoder.encode([]).shape == (0, encoder.model.encoder.width)
    assert encoder.encode("one text").shape[0] == 1


@pytest.fixture(scope="module", params=["first", "last"])
def asking(request) -> TextEncoder:
    """A model with two streams, before or behind whose texts the [CLS] stands."""
    tokenizer = Tokenizer.train(lines(), kind="wordpiece", vocab=400)
    if request.param == "last":
        inner = tokenizer.inner
        special = [(name, inner.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
        inner.post_processor = processors.TemplateProcessing("$A [SEP] [CLS]:2", special_tokens=special)
        tokenizer = Tokenizer(inner)
    assert tokenizer.class_last == (request.param == "last")
    r = recipe("xlnet_mini")
    r.encoder.vocab, r.encoder.width, r.encoder.stack.depth = tokenizer.size, 64, 2
    torch.manual_seed(0)
    model = build(r).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.1)
    return TextEncoder(model, tokenizer, r)


def test_two_streams_fill_masks_without_reading_them(asking):
    tokenizer = asking.tokenizer
    (guesses, others) = asking.fill_mask("the [MASK] sat on a [MASK].", top=3)
    assert len(guesses) == len(others) == 3
    word = tokenizer.encode(["nothing"])[0].ids.tolist()
    assert tokenizer.decode(tokenizer.encode([guesses[0]["text"]])[0].ids).startswith("the")
    ids, begin = asking.add_special_tokens(
        tokenizer.encode(["the [MASK] sat on a [MASK]."], specials=True)[0].ids.tolist()
    )
    assert begin == (0 if tokenizer.class_last else 1)
    holes = [at for at, token in enumerate(ids) if token == tokenizer.mask]
    with torch.no_grad():
        result = asking._at_holes(ids, holes)
        other = asking._at_holes([word[0] if at in holes else token for at, token in enumerate(ids)], holes)
        changed = asking._at_holes([word[0] if token == ids[begin] else token for token in ids], holes)
    assert torch.equal(result, other)
    assert not torch.allclose(result, changed, atol=1e-3)
    torch.testing.assert_close(
        asking.model.head("permuted_lm").logits(result).softmax(-1)[0].max().item(), guesses[0]["score"]
    )


def test_two_streams_give_sentence_vectors(asking):
    texts = ["the cat sat.", "two dogs ran over green hills and saw nothing", "rain"]
    together, alone = asking.encode(texts), np.concatenate([asking.encode([text]) for text in texts])
    assert together.shape == (3, 64)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    tokenizer = asking.tokenizer
    ids = tokenizer.encode(texts[:1])[0].ids.tolist()
    last = tokenizer.class_last
    row = [*ids, tokenizer.sep, tokenizer.cls] if last else [tokenizer.cls, *ids, tokenizer.sep]
    types = torch.tensor([[0] * (len(row) - 1) + [2]]) if last else None
    expected = asking.forward(torch.tensor([row]), token_type_ids=types).last_hidden_state[0].mean(0)
    np.testing.assert_allclose(together[0], expected.numpy(), atol=1e-5)


def test_transformers_reads_the_same_ids_and_fills_the_same_mask(encoder, tmp_path):
    transformers = pytest.importorskip("transformers")
    save(encoder, tmp_path / "hf", format="hf")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    texts = real_lines() or lines(1000)
    ours = encoder.tokenizer
    for text, encoding in zip(texts, ours.encode(texts), strict=True):
        assert theirs(text)["input_ids"] == [ours.cls, *encoding.ids.tolist(), ours.sep]
    pair = theirs("the cat", "two dogs ran")
    assert ("token_type_ids" in pair) == (encoder.recipe.encoder.embed.segments > 1)
    assert max(pair.get("token_type_ids", [1])) == 1
    assert len(theirs("rain " * 2000, truncation=True)["input_ids"]) == 512
    text = f"the cat {ours.names['mask']} on a mat."
    pipeline = transformers.pipeline("fill-mask", model=str(tmp_path / "hf"))
    for left, right in zip(pipeline(text), encoder.fill_mask(text), strict=True):
        assert left["token"] == right["id"]
        assert left["score"] == pytest.approx(right["score"], abs=1e-5)


def real_lines() -> list[str]:
    """1,000 lines, English and Chinese, where the shared data is at hand."""
    results: list[str] = []
    for name in ("en_wiki", "zh_wiki"):
        file = SHARED / name / "train.jsonl"
        if file.is_file():
            with file.open(encoding="utf-8") as rows:
                texts = [
                    line
                    for _, row in zip(range(200), rows, strict=False)
                    for line in json.loads(row)["text"].split("\n")
                ]
            results += [text[:400] for text in texts if text.strip()][:500]
    return results


def test_a_model_without_a_tokenizer_works_on_ids(encoder, tmp_path):
    save(TextEncoder(encoder.model, None, encoder.recipe), tmp_path / "bare")
    bare = load(tmp_path / "bare")
    assert bare.tokenizer is None
    assert bare.forward(torch.tensor([[2, 5, 3]])).logits is not None
    with pytest.raises(InputError, match="without a tokenizer"):
        bare.encode(["text"])


def test_bad_arguments_get_a_sentence(encoder):
    with pytest.raises(InputError, match=r"texts\[1\]: 3; a string is needed"):
        encoder.encode(["one", 3])
    with pytest.raises(InputError, match=r"ids from 5 to 99999; the model has tokens 0 to"):
        encoder.forward(torch.tensor([[5, 99999]]))
    with pytest.raises(InputError, match="600 tokens; the model has 512 positions"):
        encoder.forward(torch.zeros(1, 600, dtype=torch.long))


def test_bad_directories_get_a_sentence(tmp_path, encoder):
    with pytest.raises(InputError, match="no such directory"):
        load(tmp_path / "nowhere")
    for name in ("bert-base-uncased", "google/bert_uncased_L-2_H-128_A-2"):
        with pytest.raises(InputError, match=f"nothing is downloaded here.*hf download {name}"):
            load(name)
    with pytest.raises(InputError, match=r"recipe\.json or config\.json is needed"):
        load(tmp_path)
    save(encoder, tmp_path / "model")
    with pytest.raises(InputError, match="exists already"):
        save(encoder, tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(InputError, match="unreadable"):
        load(tmp_path / "model")


def test_weights_of_another_recipe_are_named(tmp_path, encoder):
    save(encoder, tmp_path / "model")
    data = json.loads((tmp_path / "model" / "recipe.json").read_text())
    data["encoder"]["stack"]["depth"] = 3
    (tmp_path / "model" / "recipe.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"no tensor encoder\.stack\.blocks\.2"):
        load(tmp_path / "model")
    data["encoder"]["stack"]["depth"] = 1
    (tmp_path / "model" / "recipe.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="the recipe has no such part"):
        load(tmp_path / "model")


@pytest.mark.slow
def test_an_own_part_trains_saves_and_loads(tmp_path):
    """From a user's script: a mixer of theirs, through pretraining, and back through cw.load(parts=...)."""
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(lines(200)[n : n + 5]) for n in range(0, 200, 5)))
    script = tmp_path / "mine.py"
    script.write_text(
        textwrap.dedent(
            """
            from dataclasses import dataclass

            import torch
            from torch import nn

            import clozeworks as cw
            from clozeworks.nn.mixer import Mixer, MixerLayer


            @dataclass(slots=True)
            class Average(Mixer):
                '''Every token gets the mean of what it sees.'''

                gain: float = 1.0

                def build(self, width):
                    return AverageLayer(width, self.gain)


            class AverageLayer(MixerLayer):
                def __init__(self, width, gain):
                    super().__init__()
                    self.out, self.gain = nn.Linear(width, width), gain

                def extend(self, past, x):
                    return x if past is None else torch.cat([past, x], 1)

                def forward(self, query, memory, context):
                    rows = query if memory is None else memory
                    seen = context.mask()[:, 0].to(rows.dtype)
                    return self.gain * self.out(seen @ rows / seen.sum(-1, keepdim=True).clamp(min=1)), None


            if __name__ == "__main__":
                cw.prepare(["text.txt"], "data", vocab=200)
                r = cw.recipe("bert_tiny")
                r.encoder.stack.block.mixer = Average(gain=0.5)
                r.train.steps, r.train.batch_tokens = 3, 512
                cw.pretrain(r, "data", "run", progress=False)
                enc = cw.load("run", parts=[Average])
                assert enc.recipe.encoder.stack.block.mixer == Average(gain=0.5)
                print(len(enc.fill_mask("the [MASK] sat.")))
            """
        )
    )
    run = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip().endswith("5")
    with pytest.raises(cw.RecipeError, match=r"Average: no part of that name is known; .*parts="):
        cw.load(tmp_path / "run")


def test_the_recipe_of_a_run_is_the_one_its_checkpoint_has_verified(road: Path, tmp_path: Path):
    shutil.copytree(road / "run", tmp_path / "run")
    recipe, tokenizer = (tmp_path / "run" / name for name in ("recipe.json", "tokenizer.json"))
    before = load(tmp_path / "run").recipe
    recipe.write_text(recipe.read_text().replace('"eps": 1e-12', '"eps": 1e-02'))
    tokenizer.write_text("damaged")
    assert load(tmp_path / "run").recipe == before


def test_convolutions_behind_rows_of_zeros_read_padded_texts_as_alone():
    r = recipe("transformer_xl_mini")
    r.encoder.vocab, r.encoder.width, r.encoder.embed.words = 40, 16, None
    block = Block(LightConv(2, 3), FeedForward(16))
    r.encoder.stack = Stack(2, block, memory=4, initial_memory="zeros")
    r.objective.losses = (NextToken(),)
    encoder = TextEncoder(build(r).eval(), None, r)
    ids = torch.arange(14).view(2, 7) + 5
    mask = torch.tensor([[1] * 3 + [0] * 4, [1] * 7])
    torch.testing.assert_close(encoder(ids, mask).last_hidden_state[0, :3], encoder(ids[:1, :3]).last_hidden_state[0])
