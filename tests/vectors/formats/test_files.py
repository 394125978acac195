"""Files of vectors: byte for byte as gensim writes them, read as it reads them, and faults reported by their line."""

import gzip
import stat

import numpy as np
import pytest
from safetensors.numpy import save_file

from clozeworks.core.errors import InputError
from clozeworks.vectors.formats import files, rows
from clozeworks.vectors.table import Vectors, load_vectors

WORDS = ["the", "of", "naïve", "北京", "new_york", "1.5", "42", "nan", "inf"]


@pytest.fixture
def vectors() -> Vectors:
    rng = np.random.default_rng(0)
    table = (rng.standard_normal((len(WORDS), 5)) * 10.0 ** rng.integers(-9, 9, (len(WORDS), 1))).astype(np.float32)
    table[0, :4] = [0.1, -0.0, 3, 1e-5]
    return Vectors(WORDS, table, np.arange(len(WORDS), 0, -1), about={"method": "planted", "dim": 5})


@pytest.fixture
def peer():
    return pytest.importorskip("gensim.models").KeyedVectors


def same(one: Vectors, other: Vectors) -> None:
    assert one.words == other.words
    assert one.table.tobytes() == other.table.tobytes()


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.bin", "v.safetensors"])
def test_every_format_gives_back_what_it_got(vectors, tmp_path, name):
    vectors.save(tmp_path / name)
    same(load_vectors(tmp_path / name), vectors)
    same(load_vectors(tmp_path / name, limit=3), Vectors(WORDS[:3], vectors.table[:3]))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o666 & ~current_umask(tmp_path)


def current_umask(place) -> int:
    (place / "made").touch()
    mode = stat.S_IMODE((place / "made").stat().st_mode)
    (place / "made").unlink()
    return 0o666 & ~mode


def test_lines_without_a_header(vectors, tmp_path):
    vectors.save(tmp_path / "v.txt", header=False)
    assert (tmp_path / "v.txt").read_text().splitlines()[0] == "the 0.1 -0.0 3.0 1e-05 " + str(vectors.table[0, 4])
    same(load_vectors(tmp_path / "v.txt"), vectors)


def test_a_file_of_tensors_keeps_everything(vectors, tmp_path):
    vectors.output, vectors.more = vectors.table * 2, {"buckets": np.ones((2, 5), np.float32)}
    vectors.save(tmp_path / "v.safetensors")
    loaded = load_vectors(tmp_path / "v.safetensors")
    np.testing.assert_array_equal(loaded.counts, vectors.counts)
    np.testing.assert_array_equal(loaded.output, vectors.output)
    np.testing.assert_array_equal(loaded.more["buckets"], vectors.more["buckets"])
    assert loaded.about == vectors.about
    mapped = load_vectors(tmp_path / "v.safetensors", mapped=True)
    assert isinstance(mapped.table, np.memmap)
    same(mapped, vectors)
    assert mapped.most_similar("the", top=2) == vectors.most_similar("the", top=2)
    mapped.save(tmp_path / "v.safetensors")  # over the file it lies in
    same(load_vectors(tmp_path / "v.safetensors"), vectors)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves a file open
@pytest.mark.parametrize(("binary", "header"), [(False, True), (False, False), (True, True)])
def test_files_equal_gensims(vectors, tmp_path, peer, binary, header):
    keyed, name = peer(5), "v.bin" if binary else "v.txt"
    keyed.add_vectors(vectors.words, vectors.table)
    keyed.save_word2vec_format(tmp_path / name, binary=binary, write_header=header)
    vectors.save(tmp_path / f"ours_{name}", header=header)
    assert (tmp_path / name).read_bytes() == (tmp_path / f"ours_{name}").read_bytes()
    same(load_vectors(tmp_path / name), vectors)
    back = peer.load_word2vec_format(tmp_path / f"ours_{name}", binary=binary, no_header=not header)
    assert back.index_to_key == WORDS
    assert back.vectors.tobytes() == vectors.table.tobytes()


def test_line_breaks_after_binary_rows_and_spaces_after_lines(vectors, tmp_path):
    """The C program writes both."""
    parts = [word.encode() + b" " + row.tobytes() + b"\n" for word, row in zip(WORDS, vectors.table, strict=True)]
    (tmp_path / "v.bin").write_bytes(b"9 5\n" + b"".join(parts))
    same(load_vectors(tmp_path / "v.bin"), vectors)
    vectors.save(tmp_path / "v.txt")
    text = (tmp_path / "v.txt").read_text()
    for other in (text.replace("\n", " \n"), text.replace(" ", "\t"), text.replace("\n", "\r\n"), text.rstrip("\n")):
        (tmp_path / "v.txt").write_bytes(other.encode())
        same(load_vectors(tmp_path / "v.txt"), vectors)


def test_content_tells_the_format_and_packed_files_are_read(vectors, tmp_path):
    for name in ("v.txt", "v.bin"):
        vectors.save(tmp_path / name)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        (tmp_path / "any_name").write_bytes((tmp_path / name).read_bytes())
        same(load_vectors(tmp_path / f"{name}.gz"), vectors)
        same(load_vectors(tmp_path / "any_name"), vectors)


def test_blocks_of_many_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "LINES", 7)
    monkeypatch.setattr(rows, "CHUNK", 100)
    rng = np.random.default_rng(0)
    many = Vectors([f"w{k}" for k in range(3000)], rng.standard_normal((3000, 3)).astype(np.float32))
    for name, header in (("v.txt", True), ("n.txt", False), ("v.bin", True)):
        many.save(tmp_path / name, header)
        same(load_vectors(tmp_path / name), many)
        assert len(load_vectors(tmp_path / name, limit=1500)) == 1500


@pytest.mark.parametrize("head", ["", "2 2\n"])
def test_empty_lines(tmp_path, head):
    """At the end of a file they say nothing; between rows they are refused, or left out where that is asked for."""
    (file := tmp_path / "v.txt").write_text(f"{head}a 1 2\nb 3 4\n\n \n\n")
    assert load_vectors(file).words == ["a", "b"]
    file.write_text(f"{head}a 1 2\n\nb 3 4\n\n")
    assert load_vectors(file, errors="skip").words == ["a", "b"]
    with pytest.raises(InputError, match="an empty line"):
        load_vectors(file)


def test_a_word_with_a_space_among_bytes_is_refused_whole(tmp_path):
    """What follows it would be read from the middle of numbers."""
    rows = np.random.default_rng(0).normal(size=(3, 40)).astype("<f4")
    words = [b"king", b"new york", b"queen"]
    file = tmp_path / "v.bin"
    file.write_bytes(b"3 40\n" + b"".join(word + b" " + row.tobytes() for word, row in zip(words, rows, strict=True)))
    for errors in ("strict", "skip"):
        with pytest.raises(InputError, match="does a word before it have a space"):
            load_vectors(file, errors=errors)


def test_the_same_vectors_are_the_same_bytes(vectors, tmp_path):
    """However long it took to make them."""
    for seconds in (1.5, 2.5):
        vectors.about = {"seed": 1, "seconds": seconds, "words_per_second": 9 * seconds}
        vectors.save(tmp_path / f"{seconds}.safetensors")
    assert (tmp_path / "1.5.safetensors").read_bytes() == (tmp_path / "2.5.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["v.safetensors", "v.txt", "v.bin"])
def test_a_word_of_nothing_is_not_written(tmp_path, name):
    with pytest.raises(InputError, match="words have letters"):
        Vectors(["", "a"], np.ones((2, 3), np.float32)).save(tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 3\na 1 2 3\nb 1 2\n", "line 3: 2 numbers; 3 are needed as in the lines before"),
        ("a 1 2 3\nb 1 2 3 4\n", "line 2: 4 numbers; 3 are needed"),
        ("a 1 2 3\nb 1 2 3 4\nc 1 2\n", "line 2: 4 numbers"),  # as many numbers in all as there should be
        ("a 1 2\n\nb 1 2\n", "line 2: an empty line"),
        ("a 1 2\nb 1 nan\n", "line 2: a number of b is not finite"),
        ("a 1 2\nb 1 -inf\n", "line 2: a number of b is not finite"),
        ("a 1 2\nb 1 x2\n", "line 2: 'x2'; 2 numbers are needed after the word"),
        ("a 1 2\nb 1 2,5\n", "line 2: '2,5'"),
        ("a 1 2\na 3 4\n", "line 2: a a second time"),
        ("a 1 2\nnew york 3 4\n", "line 2: the word 'new york'; words have letters and no spaces"),
        ("3 2\na 1.5 2.5\nb 1.5 2.5\n", "2 rows, and its first line says 3"),
        ("1 2\na 1 2\nb 1 2\n", "more rows, and its first line says 1"),
        ("999999999 300\na 1 2\n", "its first line says 999,999,999 words"),
        ("0 3\n", "0 words of 3 numbers"),
        ("2 3\n", "its first line says 2 words"),
        ("", "an empty file"),
        ("word\n", "line 1: 'word"),
    ],
)
def test_faults_of_text_are_reported_by_their_line(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError) as refused:
        load_vectors(tmp_path / "v.txt")
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "v.txt"))
    assert "\n" not in str(refused.value)


def test_bytes_that_are_not_utf8(tmp_path):
    (tmp_path / "v.txt").write_bytes(b"a 1 2\n\xff\xfe 1 2\n")
    with pytest.raises(InputError, match=r"line 2: .* not UTF-8"):
        load_vectors(tmp_path / "v.txt")


def test_faulty_rows_can_be_left_out(tmp_path):
    text = "a 1 2\nb 1\nnew york 1 2\nc 1 nan\na 5 6\nd x 2\n. . 3 4\ne 7 8\n"
    (tmp_path / "v.txt").write_text(text)
    loaded = load_vectors(tmp_path / "v.txt", errors="skip")
    same(loaded, Vectors(["a", "e"], np.float32([[1, 2], [7, 8]])))
    assert loaded.about == {"skipped": 6}


def test_faults_of_bytes(vectors, tmp_path):
    vectors.save(tmp_path / "v.bin")
    whole = (tmp_path / "v.bin").read_bytes()

    def refused(content: bytes) -> str:
        (tmp_path / "v.bin").write_bytes(content)
        with pytest.raises(InputError) as error:
            load_vectors(tmp_path / "v.bin")
        return str(error.value)

    assert "ends within row 9 of 9" in refused(whole[:-3])
    assert "more bytes than the 9 rows" in refused(whole + b"x")
    assert "its first line says 9 words" in refused(whole[:40])
    assert "a number of the is not finite" in refused(whole.replace(vectors.table[0, :1].tobytes(), b"\0\0\xc0\x7f", 1))
    assert "of a second time" in refused(whole.replace(b"the ", b"of ", 1) + b"\n")
    assert "a fastText model" in refused((793712314).to_bytes(4, "little") + bytes(50))
    assert "a first line with the number of words" in refused(b"\0\1\2\n" + bytes(50))


def test_faults_of_tensors(vectors, tmp_path):
    from safetensors.numpy import save_file

    place = tmp_path / "v.safetensors"
    vectors.save(place)
    place.write_bytes(place.read_bytes()[:-5])
    with pytest.raises(InputError, match="unreadable"):
        load_vectors(place)
    save_file({"other": np.zeros(2)}, place)
    with pytest.raises(InputError, match="tensors called table and words are needed"):
        load_vectors(place)
    words = np.frombuffer(b"a\nb", np.uint8)
    save_file({"table": np.zeros((3, 2), np.float32), "words": words}, place)
    with pytest.raises(InputError, match="2 words and a table of shape"):
        load_vectors(place)
    save_file({"table": np.float32([[0, np.nan], [1, 2]]), "words": words}, place)
    with pytest.raises(InputError, match="row 1: a number of a is not finite"):
        load_vectors(place)
    assert load_vectors(place, errors="skip").words == ["b"]
    save_file({"table": np.zeros((2, 2)), "words": words}, place)
    assert load_vectors(place).table.dtype == np.float32
    with pytest.raises(InputError, match="float32 is needed to stay on the disk"):
        load_vectors(place, mapped=True)


def test_what_cannot_be_written_leaves_the_old_file(vectors, tmp_path):
    vectors.save(tmp_path / "v.txt")
    before = (tmp_path / "v.txt").read_bytes()
    spaced = Vectors(["new york"], np.float32([[1, 2]]))
    for name in ("v.txt", "v.bin"):
        with pytest.raises(InputError, match="words have letters and no spaces in this format"):
            spaced.save(tmp_path / name)
    spaced.save(tmp_path / "v.safetensors")
    assert load_vectors(tmp_path / "v.safetensors").words == ["new york"]
    with pytest.raises(InputError, match=r"the ending \.npy; .safetensors, .bin or .txt is needed"):
        vectors.save(tmp_path / "v.npy")
    with pytest.raises(InputError, match="only text can do without"):
        vectors.save(tmp_path / "v.bin", header=False)
    vectors.table = vectors.table[:-1]
    with pytest.raises(ValueError, match="zip"):
        vectors.save(tmp_path / "v.txt")
    assert (tmp_path / "v.txt").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.safetensors", "v.txt"]


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        files.read(tmp_path / "missing.txt")
    with pytest.raises(InputError, match="a directory"):
        files.read(tmp_path)
    (tmp_path / "v.txt").write_text("a 1 2\n")
    with pytest.raises(InputError, match="only such a file can stay on the disk"):
        files.read(tmp_path / "v.txt", mapped=True)
    with pytest.raises(InputError, match="1 or more words"):
        files.read(tmp_path / "v.txt", limit=0)


def test_no_line_behind_the_limit_is_looked_at(tmp_path):
    (tmp_path / "v.txt").write_text("queen 1 2 3\nking 1 2 3\nnew york 1 2 3\n")
    assert load_vectors(tmp_path / "v.txt", limit=2).words == ["queen", "king"]
    (tmp_path / "v.txt").write_text("2 3\nqueen 1 2 3\nking 1 2 3\nprince 1 2 3\n")
    with pytest.raises(InputError, match="more rows"):
        load_vectors(tmp_path / "v.txt")


def test_a_faulty_beginning_can_be_left_out_and_a_mark_of_bytes_is_no_fault(tmp_path):
    (tmp_path / "v.txt").write_text("queen 1 2 x\n\nking 1 2 3\nprince 3 2 1\n")
    loaded = load_vectors(tmp_path / "v.txt", errors="skip")
    assert (loaded.words, loaded.about["skipped"]) == (["king", "prince"], 2)
    with pytest.raises(InputError, match="line 1"):
        load_vectors(tmp_path / "v.txt")
    (tmp_path / "v.txt").write_bytes(b"\xef\xbb\xbf2 3\nking 1 2 3\nprince 3 2 1\n")
    assert load_vectors(tmp_path / "v.txt").words == ["king", "prince"]


@pytest.mark.parametrize("fault", ["letters", "json", "bfloat16"])
def test_tensors_of_another_kind_are_reported(vectors, tmp_path, fault):
    torch, save_file = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch").save_file
    letters = torch.tensor(list(b"\xff\xfe" if fault == "letters" else b"a\nb"), dtype=torch.uint8)
    kind = torch.bfloat16 if fault == "bfloat16" else torch.float32
    about = {"about": "{" if fault == "json" else "{}"}
    save_file({"words": letters, "table": torch.ones(2, 3, dtype=kind)}, tmp_path / "v.safetensors", about)
    with pytest.raises(InputError, match="unreadable"):
        load_vectors(tmp_path / "v.safetensors")


def test_words_that_are_no_strings_are_reported(tmp_path):
    for name in ("v.txt", "v.safetensors"):
        with pytest.raises(InputError, match="words are strings"):
            Vectors([7, "b"], np.eye(2, dtype=np.float32)).save(tmp_path / name)


@pytest.mark.parametrize("about", ["[" * 5000 + "]" * 5000, "[]", "{"])
def test_what_tensors_of_others_say_is_not_believed(about, tmp_path):
    words = np.frombuffer(b"a\nb", np.uint8)
    save_file({"table": np.ones((2, 3), np.float32), "words": words}, tmp_path / "v.safetensors", {"about": about})
    with pytest.raises(InputError, match=r"v\.safetensors: unreadable \("):
        load_vectors(tmp_path / "v.safetensors")
