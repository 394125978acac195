"""The sides of the prepare benchmark, each in a fresh process: raw text to tokens on disk, with one tokenizer.

    python -m benchmarks.preparers SIDE FOLDER TEXT PROCESSES

Two lines of JSON come back: when the work is done, what it took; then how many tokens there are. In between nothing is
counted, so that the counting is nobody's cost. Nothing is imported here that a side does not need itself.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKENIZER = "tokenizer"

Side = Callable[[Path, Path, int], Callable[[], Callable[[], int]]]  # import, then work, then count


def ours(folder: Path, text: Path, processes: int) -> Callable[[], Callable[[], int]]:
    """What `clozeworks prepare TEXT --tokenizer DIR --processes N` does."""
    from clozeworks.data.shards.prepare import prepare
    from clozeworks.data.tokens.tokenizer import Tokenizer

    def work() -> Callable[[], int]:
        tokenizer = Tokenizer.load(folder / TOKENIZER)
        done = prepare(text, folder / "out" / "data", tokenizer=tokenizer, processes=processes)
        return lambda: sum(split.tokens for split in done.splits.values())

    return work


def theirs(folder: Path, text: Path, processes: int) -> Callable[[], Callable[[], int]]:
    """What the peer's users do: load, map a fast tokenizer over batches, and train from the cache that this writes.

    Ids alone are asked for. One process is none beside its own (`num_proc=None`), where `tokenizers` has every core.
    """
    import datasets
    import transformers

    def work() -> Callable[[], int]:
        tokenizer: Any = transformers.PreTrainedTokenizerFast.from_pretrained(folder / TOKENIZER)
        reader = "json" if text.suffix == ".jsonl" else "text"
        cache = str(folder / "out" / "cache")
        loaded: Any = datasets.load_dataset(reader, data_files=str(text), split="train", cache_dir=cache)

        def encode(records: dict[str, Any]) -> dict[str, Any]:
            ids = tokenizer(
                records["text"], add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False
            )
            return {"input_ids": ids["input_ids"]}

        mapped = loaded.map(
            encode, batched=True, remove_columns=loaded.column_names, num_proc=processes if processes > 1 else None
        )

        def count() -> int:
            import pyarrow.compute

            compute: Any = pyarrow.compute
            return int(compute.sum(compute.list_value_length(mapped.data.column("input_ids"))).as_py())

        return count

    return work


def cpu_seconds() -> float:
    """Of this process and of the children it has waited for."""
    import resource

    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main(side: str, folder: str, text: str, processes: str) -> None:
    from benchmarks.memory import held

    answers, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not be taken for an answer
    sides: dict[str, Side] = {"ours": ours, "theirs": theirs}
    work = sides[side](Path(folder), Path(text), int(processes))
    before = held("self").all
    begin, cpu = time.perf_counter(), cpu_seconds()
    count = work()
    took = {"seconds": time.perf_counter() - begin, "cpu_seconds": cpu_seconds() - cpu, "before_work_mb": before}
    print(json.dumps(took), file=answers, flush=True)
    print(json.dumps({"tokens": count()}), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
