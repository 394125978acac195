"""Files with a token a line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.tables import read_table
from clozeworks.data.tables.conll import read_conll

ENGLISH = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
"""


def test_the_token_is_first_and_the_tag_last(tmp_path: Path):
    for name in ("eng.train", "a.conll", "a.txt", "a.bio"):
        (tmp_path / name).write_text(ENGLISH)
        table = read_table(tmp_path / name, ("tokens",), ("tags",)).table
        assert table.rows == [
            {"tokens": ["EU", "rejects"], "tags": ["I-ORG", "O"]},
            {"tokens": ["Peter"], "tags": ["I-PER"]},
        ]
        assert table.where(1) == f"{tmp_path / name}, line 6"


def test_two_columns_of_chinese(tmp_path: Path):
    (tmp_path / "a.bio").write_bytes("\ufeff海 B-LOC\r\n\u3000 O\r\n\r\n \r\n钓\tO\r\n".encode())
    rows = read_table(tmp_path / "a.bio", ("tokens",), ("tags",)).table.rows
    assert rows == [{"tokens": ["海", "\u3000"], "tags": ["B-LOC", "O"]}, {"tokens": ["钓"], "tags": ["O"]}]


def test_tokens_alone_can_be_answered_but_not_learned_from(tmp_path: Path):
    (tmp_path / "a.conll").write_text("EU\nrejects\n")
    assert read_table(tmp_path / "a.conll", ("tokens",)).table.rows == [{"tokens": ["EU", "rejects"]}]
    with pytest.raises(InputError, match="no column for tags"):
        read_table(tmp_path / "a.conll", ("tokens",), ("tags",))


@pytest.mark.parametrize(("line", "message"), [("b", "1 column, 'b'"), ("b x O", "3 columns"), ("\tO", "no token")])
def test_a_line_unlike_the_others_is_refused(tmp_path: Path, line: str, message: str):
    (tmp_path / "a.conll").write_text(f"a O\n\n{line}\n")
    with pytest.raises(InputError, match=f"line 3: {message}"):
        read_table(tmp_path / "a.conll", ("tokens",), ("tags",))


WORD = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(
    lambda word: " " not in word and word != "-DOCSTART-"
)
SENTENCE = st.lists(st.tuples(WORD, WORD), min_size=1, max_size=5)


@given(
    st.lists(SENTENCE, min_size=1, max_size=4),
    st.sampled_from(["\t", " ", "  ", " X "]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_is_written_is_read_back(sentences, mark: str, end: str):
    text = (end * 2).join(end.join(f"{token}{mark}{tag}" for token, tag in sentence) for sentence in sentences)
    lines = enumerate((line + "\n" for line in text.split("\n")), 1)
    rows = [row for _, row in read_conll(lines, "a")]
    assert [list(zip(row["tokens"], row["tags"], strict=True)) for row in rows] == sentences


def test_a_treebank_has_words_and_parts_of_speech(tmp_path: Path):
    line = "{}\t{}\tx\t{}\tX\t_\t0\troot\t_\t_\n".format
    text = "# text = vámonos\n" + line("1-2", "vámonos", "_") + line(1, "vamos", "VERB") + line(2, "nos", "PRON")
    (tmp_path / "a.conllu").write_text(text + line("2.1", "x", "_") + "\n# sent_id = 2\n" + line(1, "el mar", "NOUN"))
    table = read_table(tmp_path / "a.conllu", ("tokens",), ("tags",)).table
    assert table.rows == [
        {"tokens": ["vamos", "nos"], "tags": ["VERB", "PRON"]},
        {"tokens": ["el mar"], "tags": ["NOUN"]},
    ]
    assert table.where(1).endswith("line 8")
    (tmp_path / "b.conllu").write_text("1\tonly\tthree\n")
    with pytest.raises(InputError, match="line 1: 3 columns; 10 columns with tabs"):
        read_table(tmp_path / "b.conllu", ("tokens",), ("tags",))
