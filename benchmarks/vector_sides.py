"""One side of the benchmark of word vectors, in a process of its own: read the text, train, say how long it took."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SETTING = "setting.json"  # as `harness` writes it, which is not imported: its memory is no side's

TEXT = "text.txt"
SIDES = ("ours", "lists", "file")
RATES = {"skipgram": 0.025, "cbow": 0.05}


def main(folder: Path, name: str, cell: str, seed: int) -> None:
    setting = json.loads((folder / SETTING).read_text())
    method, _, tree = cell.partition("-")
    if name in ("ours", "warm"):
        took, words, table = ours(folder / TEXT, setting, method, bool(tree), seed, name == "warm")
    else:
        took, words, table = theirs(folder / TEXT, setting, method, bool(tree), seed, name == "file")
    total = took.pop("words") * setting["epochs"]
    took |= {
        "words_per_second": round(total / took["seconds"], 1),
        "words_per_cpu_second": round(total / took["cpu_seconds"], 1),
    }
    print(json.dumps(took), flush=True)
    (folder / "words.txt").write_text("\n".join(words), encoding="utf-8")
    np.save(folder / "table.npy", table)


def ours(file: Path, setting: dict[str, Any], method: str, tree: bool, seed: int, warm: bool) -> tuple[Any, Any, Any]:
    from clozeworks.vectors.train import Settings, train
    from clozeworks.vectors.words import gathered

    clock = Clock()
    with file.open(encoding="utf-8") as lines:
        words = gathered((line.split() for line in lines), setting["min_count"])
    few = gathered([words.words[:2] * 5])
    shape = {name: setting[name] for name in ("dim", "window", "sample", "workers")}
    settings = Settings(
        **shape,
        negative=0 if tree else setting["negative"],
        hs=tree,
        bags=method == "cbow",
        epochs=setting["epochs"],
        rate=RATES[method],
        seed=seed,
    )
    train(few, settings)  # what was compiled before is loaded
    clock.begin()
    vectors = train(few if warm else words, settings)
    return {**clock.end(), "words": len(words.ids)}, vectors.words, vectors.table


def theirs(
    file: Path, setting: dict[str, Any], method: str, tree: bool, seed: int, whole: bool
) -> tuple[Any, Any, Any]:
    from gensim.models import Word2Vec

    clock = Clock()
    given: dict[str, Any] = {"corpus_file": str(file)}
    if not whole:
        with file.open(encoding="utf-8") as lines:
            given = {"corpus_iterable": [line.split() for line in lines]}
    model = Word2Vec(
        vector_size=setting["dim"],
        window=setting["window"],
        negative=0 if tree else setting["negative"],
        hs=int(tree),
        sg=int(method == "skipgram"),
        alpha=RATES[method],
        min_count=setting["min_count"],
        sample=setting["sample"],
        workers=setting["workers"],
        seed=seed,
    )
    model.build_vocab(**given)
    kept = sum(model.wv.get_vecattr(word, "count") for word in model.wv.index_to_key)
    clock.begin()
    model.train(
        **given,
        total_words=model.corpus_total_words,
        total_examples=model.corpus_count,
        epochs=setting["epochs"],
    )
    return {**clock.end(), "words": kept}, model.wv.index_to_key, model.wv.vectors


class Clock:
    """Seconds of reading, then of training, by the wall and by the processor."""

    def __init__(self):
        self._made = time.perf_counter()
        self._begin = self._cpu = 0.0

    def begin(self) -> None:
        self._begin, self._cpu = time.perf_counter(), time.process_time()

    def end(self) -> dict[str, float]:
        seconds, cpu = time.perf_counter() - self._begin, time.process_time() - self._cpu
        return {"seconds": seconds, "cpu_seconds": cpu, "seconds_reading": self._begin - self._made}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
