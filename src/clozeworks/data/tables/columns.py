"""Which column of a file is which: as a user says, or by the names that are usual."""

import re
from collections.abc import Collection, Mapping, Sequence

from clozeworks.core.errors import InputError, suggest

# The first that a file has is taken; capitals, spaces, hyphens and underscores do not count.
USUAL = {
    "text": "text sentence review content comment document body tweet message utterance description title input "
            "文本 内容 评论 句子",
    "text_a": "text_a sentence1 premise sentence_a text1 question1 sent1 query1 s1 sentence_1 #1_string text query "
              "question anchor first 句子1 文本1",
    "text_b": "text_b sentence2 hypothesis sentence_b text2 question2 sent2 query2 s2 sentence_2 #2_string passage "
              "sentence title answer positive second 句子2 文本2",
    "text_c": "text_c negative hard_negative sentence3 text3 third",
    "label": "label labels class category target y gold_label sentiment polarity intent topic is_duplicate quality "
             "gold answer 标签 类别",
    "score": "score similarity similarity_score relatedness relatedness_score relatedness_judgment rating label target "
             "y gold 分数",
    "tokens": "tokens words token word characters chars sentence text 文本 句子",
    "tags": "tags ner_tags labels tag ner pos_tags upos label ner_label iob bio chunk_tags seg_tags entities spans "
            "标签 实体",
    "question": "question query questions stem prompt sent2 问题",
    "context": "context passage paragraph article story document premise ctx sent1 content text 文章",
    "answers": "answers answer answer_text answer_texts 答案",
    "id": "id qid question_id example_id guid uid qa_id idx",
    "choices": "choices options candidates endings alternatives choice option 选项",
    "answer": "answer label answer_index answer_idx answer_key correct correct_answer gold target y 答案",
    "source": "source src input text document article content dialogue question 原文 正文 文章",
    "target": "target tgt output summary translation headline highlights abstract title answer 摘要 标题 译文",
}  # fmt: skip
SEVERAL = ("choices", "label")  # may be several columns: one a choice, or one a label, which says whether a row has it
JOINED = ("tokens", "words", "token", "word", "characters", "chars")  # names of columns whose texts are words already
# Names of columns that each hold one of the choices.
FAMILIES = [
    re.compile(rf"{name}[_ ]?(\d|[a-h])", re.IGNORECASE) for name in ("choice", "option", "ending", "answer", "sol")
]
LETTERS = [re.compile("[a-h]"), re.compile("[A-H]")]


def columns_for(
    names: Sequence[str],
    wanted: Sequence[str],
    given: Mapping[str, str] | None = None,
    where: str = "columns",
    optional: Collection[str] = (),
) -> dict[str, str]:
    """Of each wanted column the name that it has among `names`: as `given`, or the first that is usual and not taken.

    `label|score` is whichever of the two there is. Choices may stand in columns of their own: their names, with commas.
    Those that are `optional` may be missing.
    """
    given = {} if given is None else dict(given)
    known = [name for want in wanted for name in want.split("|")]
    for name, column in given.items():
        if name not in known:
            needed = f"this task reads {', '.join(known)}"
            raise InputError(where, f"columns {name}={column}", needed, suggest(name, known))
        for part in [column] if column in names else column.split(",") if name in SEVERAL else [column]:
            if part not in names:
                raise InputError(where, f"no column {part!r}", _there(names), _advice(part, names, name))
    columns: dict[str, str] = {}
    taken = set(given.values())
    for want in wanted:
        either = want.split("|")
        for name in [name for name in either if name in given] or either:
            column = given.get(name) or _usual(name, [other for other in names if other not in taken])
            if column is not None:
                columns[name] = column
                taken |= {column, *column.split(",")}
                break
        else:
            if not set(either) & set(optional):
                asked = " or ".join(either)
                todo = _advice(either[0], names, either[0])
                if not columns:
                    todo += f", or does the first line name no columns? then count them (columns {either[0]}=1)"
                raise InputError(where, f"no column for {asked}", _there(names), todo)
    return columns


def _usual(name: str, names: Sequence[str]) -> str | None:
    if name in names:
        return name
    plain = {_plain(column): column for column in reversed(names)}
    for usual in USUAL.get(name, name).split():
        if _plain(usual) in plain:
            return plain[_plain(usual)]
    if name == "choices":
        for family in (*FAMILIES, *LETTERS):
            several = [column for column in names if family.fullmatch(column)]
            if len(several) > 1:
                return ",".join(several)
    return None


def is_joined(column: str) -> bool:
    """Whether a text in such a column would be words with spaces between them."""
    return _plain(column) in JOINED


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-]", "", name.lower())


def _there(names: Sequence[str]) -> str:
    return f"the columns are {', '.join(names[:20])}" if names else "the rows have no named column"


def _advice(word: str, names: Sequence[str], column: str) -> str:
    if not names:
        return f"give each row a field {column!r}"
    return f"{suggest(word, names)} (columns {column}=NAME)"
