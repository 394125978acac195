"""Published directories: by a plain loop over their own arrays, and, where the files are here, by their own figures."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.core.batch import from_padded
from clozeworks.core.context import Memory
from clozeworks.core.errors import InputError
from clozeworks.exchange.char_vocab import extend_vocabulary
from clozeworks.inference.text_encoder import TextEncoder
from tests.command_line import facts
from tests.conftest import SHARED

h5py = pytest.importorskip("h5py")
FIXTURE = SHARED / "elmo_fixture"
OPTIONS = {
    "lstm": {
        "cell_clip": 0.5,
        "proj_clip": 0.15,
        "use_skip_connections": True,
        "n_layers": 2,
        "projection_dim": 4,
        "dim": 6,
    },
    "char_cnn": {
        "embedding": {"dim": 3},
        "filters": [[1, 2], [3, 5]],
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 10,
        "activation": "relu",
    },
}
SENTENCES = ["The bank closed .", "a", "internationalisation of 银行 money"]


def arrays() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    shapes = {"char_embed": (261, 3), "CNN_proj/W_proj": (7, 4), "CNN_proj/b_proj": (4,)}
    for number, (wide, many) in enumerate(OPTIONS["char_cnn"]["filters"]):
        shapes |= {f"CNN/W_cnn_{number}": (1, wide, 3, many), f"CNN/b_cnn_{number}": (many,)}
    for number in range(2):
        for name in ("carry", "transform"):
            shapes |= {f"CNN_high_{number}/W_{name}": (7, 7), f"CNN_high_{number}/b_{name}": (7,)}
        for way in range(2):
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{number}/LSTMCell/"
            shapes |= {cell + "W_0": (8, 24), cell + "B": (24,), cell + "W_P_0": (6, 4)}
    return {name: draw.normal(0, 0.7, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    (folder / "small_options.json").write_text(json.dumps(OPTIONS))
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nThe\nbank\n.\n")
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, value in arrays().items():
            file[name] = value
    return folder


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def word(given: dict[str, np.ndarray], letters: list[int]) -> np.ndarray:
    """One word from the numbers of its characters, as TensorFlow computes it."""
    x, results = given["char_embed"][letters], []
    for number, (wide, _) in enumerate(OPTIONS["char_cnn"]["filters"]):
        w, b = given[f"CNN/W_cnn_{number}"][0], given[f"CNN/b_cnn_{number}"]
        places = [np.einsum("we,wen->n", x[at : at + wide], w) + b for at in range(len(x) - wide + 1)]
        results.append(np.maximum(np.max(places, 0), 0))
    x = np.concatenate(results)
    for number in range(2):
        gate, change = (
            x @ given[f"CNN_high_{number}/W_{n}"] + given[f"CNN_high_{number}/b_{n}"] for n in ("carry", "transform")
        )
        x = sigmoid(gate) * np.maximum(change, 0) + (1 - sigmoid(gate)) * x
    return x @ given["CNN_proj/W_proj"] + given["CNN_proj/b_proj"]


def layers(
    given: dict[str, np.ndarray], rows: np.ndarray, way: int, states: list[list[np.ndarray]]
) -> list[np.ndarray]:
    """Both layers over a sentence in its order of reading; states are changed, as they continue in published code."""
    out = []
    for layer in range(2):
        cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
        made = []
        for x in rows:
            c, h = states[layer]
            i, j, f, o = np.split(np.concatenate([x, h]) @ given[cell + "W_0"] + given[cell + "B"], 4)
            c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -0.5, 0.5)
            h = np.clip((sigmoid(o) * np.tanh(c)) @ given[cell + "W_P_0"], -0.15, 0.15)
            states[layer] = [c, h]
            made.append(h + x if layer else h)
        rows = np.array(made)
        out.append(rows)
    return out


def letters(text: str | int) -> list[int]:
    whole = [258, *([text] if isinstance(text, int) else text.encode()[:8]), 259]
    return whole + [260] * (10 - len(whole))


def read(encoder: TextEncoder, texts: list[str]) -> tuple[TextEncoder, list[list[int]]]:
    model, tokenizer = extend_vocabulary(encoder.model, encoder.tokenizer, texts)
    rows = [[tokenizer.cls, *one.ids.tolist(), tokenizer.sep] for one in tokenizer.encode(texts)]
    return TextEncoder(model, tokenizer, encoder.recipe), rows


def features(encoder: TextEncoder, rows: list[list[int]], past: Memory | None):
    width = max(map(len, rows))
    ids, real = torch.full((len(rows), width), encoder.tokenizer.pad), torch.zeros(len(rows), width, dtype=torch.long)
    for at, row in enumerate(rows):
        ids[at, : len(row)], real[at, : len(row)] = torch.tensor(row), 1
    batch = from_padded(ids, real)
    with torch.no_grad():
        return encoder.model.encoder(batch.tokens, batch.token_info, batch.context(past=past), layers=True)


def test_the_numbers_of_the_published_program(directory: Path):
    given = arrays()
    encoder, rows = read(cw.load(directory), SENTENCES)
    states = [[[np.zeros(6), np.zeros(4)] for _ in range(2)] for _ in range(2)]
    past = None
    for text, ids in zip(SENTENCES, rows, strict=True):
        hidden = features(encoder, [ids], past)
        past = hidden.memory
        x = np.array([word(given, letters(each)) for each in (256, *text.split(), 257)])
        forth, back = layers(given, x, 0, states[0]), layers(given, x[::-1], 1, states[1])
        expected = [np.concatenate([x, x], 1)]
        expected += [np.concatenate([a, b[::-1]], 1) for a, b in zip(forth, back, strict=True)]
        for mine, theirs in zip(hidden.layers, expected, strict=True):
            np.testing.assert_allclose(mine[0].numpy(), theirs, atol=2e-6)
        assert (np.abs(forth[0]) == 0.15).any(), "a clip bites"


def test_import_and_load_again(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report = facts(capsys, "import", directory, "--out", tmp_path / "model")
    again, first = cw.load(tmp_path / "model"), cw.load(directory)
    assert again.recipe == first.recipe
    texts = ["The bank of Minsk", "a"]
    np.testing.assert_array_equal(again.encode(texts), first.encode(texts))
    assert again.tokenizer.names["cls"] == "<S>"
    assert report["parameters"] == cw.count_parameters(first.recipe)


def test_without_a_vocabulary_words_are_read_all_the_same(directory: Path, tmp_path: Path):
    for name in ("small_options.json", "weights.hdf5"):
        (tmp_path / name).write_bytes((directory / name).read_bytes())
    np.testing.assert_allclose(cw.load(tmp_path).encode(SENTENCES), cw.load(directory).encode(SENTENCES), atol=1e-6)


def test_what_is_missing_is_named(directory: Path, tmp_path: Path):
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS))
    with pytest.raises(InputError, match=r"no weights; an \.hdf5 file with char_embed"):
        cw.load(tmp_path)
    (tmp_path / "w.hdf5").write_bytes(b"no such thing")
    with pytest.raises(InputError, match="a whole HDF5 file is needed"):
        cw.load(tmp_path)
    with h5py.File(tmp_path / "w.hdf5", "w") as file:
        for name, value in arrays().items():
            if "Cell1" not in name:
                file[name] = value
    with pytest.raises(InputError, match=r"nothing called .*Cell1.*; the options speak of it"):
        cw.load(tmp_path)
    (tmp_path / "options.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        cw.load(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("lstm",), 5, "lstm.dim None"),
        (("lstm", "dim"), "6", "lstm.dim '6'"),
        (("lstm", "n_layers"), 1 << 40, "lstm.n_layers"),
        (("lstm", "cell_clip"), "x", "lstm.cell_clip 'x'"),
        (("char_cnn", "filters"), [[1]], "char_cnn.filters"),
        (("char_cnn", "activation"), ["relu"], "char_cnn.activation"),
        (("char_cnn", "activation"), "no", "activation = 'no'"),
        (("char_cnn", "max_characters_per_token"), 1 << 31, "max_characters_per_token"),
        (("lstm", "projection_dim"), 5, "is needed"),
    ],
)
def test_options_of_another_shape_are_one_sentence(directory: Path, tmp_path: Path, path, value, said: str):
    options = tree = json.loads(json.dumps(OPTIONS))
    for name in path[:-1]:
        tree = tree[name]
    tree[path[-1]] = value
    shutil.copytree(directory, tmp_path / "odd")
    (tmp_path / "odd" / "small_options.json").write_text(json.dumps(options))
    with pytest.raises(InputError, match=re.escape(said)):
        cw.load(tmp_path / "odd")


def test_an_array_that_only_claims_to_be_large_is_not_read(directory: Path, tmp_path: Path):
    shutil.copytree(directory, tmp_path / "odd")
    with h5py.File(tmp_path / "odd" / "weights.hdf5", "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (261, 1 << 40), "f4", chunks=(1, 1024))  # a few hundred bytes
    with pytest.raises(InputError, match="char_embed would have"):
        cw.load(tmp_path / "odd")


@pytest.mark.skipif(not FIXTURE.is_dir(), reason="the published files are not here")
def test_the_published_activations():
    """Ten sentences of three streams, states carried over: the top layer of both ways, to 1e-5."""
    streams = json.loads((FIXTURE / "sentences.json").read_text())
    encoder, rows = read(cw.load(FIXTURE), [text for stream in streams for text in stream])
    past, worst = None, 0.0
    expected = [h5py.File(FIXTURE / f"lm_embeddings_{n}.hdf5", "r") for n in range(3)]
    for step in range(10):
        ids = [rows[10 * stream + step] for stream in range(3)]
        hidden = features(encoder, ids, past)
        past = hidden.memory
        for stream in range(3):
            top = np.concatenate(list(expected[stream][str(step)][...]), -1)
            mine = hidden.last[stream, 1 : len(ids[stream]) - 1].numpy()
            worst = max(worst, float(np.abs(mine - top).max()))
    assert worst < 1e-5
    with h5py.File(FIXTURE / "elmo_token_embeddings.hdf5", "r") as file:
        table = file["embedding"][...]
    names = (FIXTURE / "vocab_test.txt").read_text().split()
    known = dict(zip(names, table, strict=False))
    ids = torch.tensor([encoder.tokenizer.id(name) for name in known])
    vectors = encoder.model.encoder.embed.words(ids).detach().numpy()
    np.testing.assert_allclose(vectors, np.array(list(known.values())), atol=1e-5)
