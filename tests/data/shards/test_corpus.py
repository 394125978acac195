import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import FORMAT, MANIFEST, Corpus, Counted, fingerprint, read_manifest
from clozeworks.data.shards.writer import Block, ShardWriter

Document = list[list[int]]  # sentences of tokens; a token begins a word when it is even


def write(
    directory: Path, documents: list[Document], shard_tokens: int = 10**9, vocab: int = 100, rows: int = 3
) -> None:
    """Blocks of so many rows, a row a sentence, so that documents continue from row to row and from block to block."""
    writer = ShardWriter(directory, "train", vocab, shard_tokens, unk=1, annotated=True)
    sentences = [(number, sentence) for number, document in enumerate(documents) for sentence in document]
    for at in range(0, len(sentences), rows):
        part = sentences[at : at + rows]
        tokens = np.array([token for _, sentence in part for token in sentence])
        lengths = np.array([len(sentence) for _, sentence in part])
        numbers = np.array([number for number, _ in part])
        units = (tokens % 3).astype(np.uint8)
        writer.add(Block(tokens, tokens % 2 == 0, lengths, np.ones(len(part), int), numbers, units))
    shards = writer.close()
    names = list(Counted.__slots__)
    total = {name: sum(entry[name] for entry in shards) for name in names}
    manifest = {"format": FORMAT, "tokenizer": {"fingerprint": "f", "size": vocab}, "splits": {"train": total}}
    (directory / MANIFEST).write_text(json.dumps(manifest | {"shards": shards}))


documents = st.lists(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), min_size=1, max_size=4), min_size=1, max_size=8
)


@given(documents, st.integers(1, 30), st.integers(1, 9), st.data())
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read(tmp_path_factory, originals, shard_tokens, rows, data):
    directory = tmp_path_factory.mktemp("shards")
    write(directory, originals, shard_tokens, rows=rows)
    corpus = Corpus.open(directory, verify="hash")
    flat = [token for document in originals for sentence in document for token in sentence]
    tokens, starts, units = corpus.take(np.array([0]), np.array([len(flat)]))
    assert tokens.tolist() == flat
    assert units is not None
    assert units.tolist() == [token % 3 for token in flat]
    assert starts.tolist() == [token % 2 == 0 for token in flat]
    assert (tokens.dtype, starts.dtype) == (np.int32, np.bool_)
    read = [
        [
            flat[corpus.sentences[s] : corpus.sentences[s + 1]]
            for s in range(corpus.documents[d], corpus.documents[d + 1])
        ]
        for d in range(len(corpus.documents) - 1)
    ]
    assert read == originals
    assert corpus.sentences.dtype == corpus.documents.dtype == np.int64
    assert len(corpus) == len(flat)
    assert corpus.counts == Counted(
        documents=len(originals),
        sentences=sum(map(len, originals)),
        words=sum(token % 2 == 0 for token in flat),
        tokens=len(flat),
        unknown=flat.count(1),
    )
    assert corpus.unigram().tolist() == np.bincount(flat, minlength=100).tolist()
    ranges = data.draw(st.lists(st.tuples(st.integers(0, len(flat)), st.integers(0, len(flat))), max_size=6))
    begins, ends = [min(pair) for pair in ranges], [max(pair) for pair in ranges]
    tokens, starts, units = corpus.take(np.array(begins, int), np.array(ends, int))
    expected = [token for begin, end in zip(begins, ends, strict=True) for token in flat[begin:end]]
    assert tokens.tolist() == expected
    assert starts.tolist() == [token % 2 == 0 for token in expected]
    assert units is None or units.tolist() == [token % 3 for token in expected]


def test_shards_hold_whole_documents_and_are_safetensors(tmp_path):
    originals = [[[1, 2, 3], [4]], [[5, 6]], [[7] * 9]]
    write(tmp_path, originals, shard_tokens=5)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert [file.name for file in files] == ["train-00000.safetensors", "train-00001.safetensors"]
    first, second = map(load_file, files)
    assert first["tokens"].tolist() == [1, 2, 3, 4, 5, 6]
    assert first["sentences"].tolist() == [0, 3, 4, 6]
    assert first["documents"].tolist() == [0, 2, 3]
    assert second["documents"].tolist() == [0, 1]
    assert (first["tokens"].dtype, first["word_starts"].dtype) == (np.uint16, np.bool_)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([MANIFEST, *(file.name for file in files)])


def test_large_vocabularies_take_32_bits(tmp_path):
    write(tmp_path, [[[70_000, 2]]], vocab=100_000)
    assert load_file(tmp_path / "train-00000.safetensors")["tokens"].dtype == np.uint32
    assert Corpus.open(tmp_path).take(np.array([0]), np.array([2]))[0].tolist() == [70_000, 2]
    write(tmp_path, [[[65_534]]], vocab=65_535)
    assert load_file(tmp_path / "train-00000.safetensors")["tokens"].dtype == np.uint16


def test_ranges_outside_are_an_error(tmp_path):
    write(tmp_path, [[[1, 2, 3]]])
    corpus = Corpus.open(tmp_path)
    for begin, end in [(-1, 2), (0, 4), (2, 1)]:
        with pytest.raises(IndexError):
            corpus.take(np.array([begin]), np.array([end]))
    assert len(corpus.take(np.array([], int), np.array([], int))[0]) == 0


def refusal(directory: Path, **options) -> str:
    with pytest.raises(InputError) as caught:
        Corpus.open(directory, **options)
    return str(caught.value)


def test_changed_shards_are_noticed(tmp_path):
    write(tmp_path, [[[1, 2, 3]]])
    file = tmp_path / "train-00000.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert "must be those that were prepared" in refusal(tmp_path)
    file.write_bytes(whole[:-1] + b"\7")
    assert len(Corpus.open(tmp_path, verify="size")) == 3  # the size alone cannot tell
    assert "hash" in refusal(tmp_path)
    file.write_bytes(b"\xff" * len(whole))
    assert "must be those that were prepared" in refusal(tmp_path)
    file.unlink()
    assert "gone" in refusal(tmp_path)


def test_what_is_no_prepared_directory_is_refused(tmp_path):
    assert "no such directory" in refusal(tmp_path / "x")
    assert "clozeworks prepare" in refusal(tmp_path)
    (tmp_path / MANIFEST).write_text("[]")
    assert "not a manifest" in refusal(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": 99}')
    assert "format 99" in refusal(tmp_path)
    write(tmp_path, [[[1]]])
    assert "it holds train" in refusal(tmp_path, split="heldout")


def test_fingerprint_follows_the_content(tmp_path):
    write(tmp_path, [[[1, 2]]])
    first, manifest = Corpus.open(tmp_path).fingerprint, read_manifest(tmp_path)
    assert fingerprint(manifest | {"command": "another"}) == first
    write(tmp_path, [[[1, 3]]])
    assert Corpus.open(tmp_path).fingerprint != first


def test_taking_is_fast_and_maps_the_file(tmp_path):
    lengths = np.full(100_000, 20)
    writer = ShardWriter(tmp_path, "train", 100)
    one = np.array([len(lengths)])  # a single document
    writer.add(Block(np.arange(2_000_000) % 100, np.ones(2_000_000, bool), lengths, one, np.zeros(1, int)))
    shards = writer.close()
    manifest = {"format": FORMAT, "tokenizer": {"fingerprint": "f", "size": 100}, "shards": shards}
    counted = {name: shards[0][name] for name in Counted.__slots__}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest | {"splits": {"train": counted}}))
    corpus = Corpus.open(tmp_path)
    chosen = np.random.default_rng(0).permutation(100_000)
    start = time.perf_counter()
    tokens = corpus.take(corpus.sentences[chosen], corpus.sentences[chosen + 1]).tokens
    assert len(tokens) / (time.perf_counter() - start) > 2e6  # a loop over ranges does about a tenth of this
    assert tokens[:20].tolist() == [(int(chosen[0]) * 20 + i) % 100 for i in range(20)]
