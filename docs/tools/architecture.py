"""The rooms of the library and what may import what: the table that tests/test_architecture.py enforces.

`python -m docs.tools.architecture` writes docs/architecture.md from it.
"""

# A room may import those above it, never one below. Modules at the root of the package stand between the rooms.
ROOMS = {
    "core": "specs, errors, batches, caches, counter-based random numbers, files written whole or not at all",
    "metrics": "plain functions on arrays: accuracy, F1, BLEU, ROUGE, bootstrap intervals",
    "plots": "pictures, in one style",
    "nn": "the parts of an encoder, one idea a file, spec and module together; kernels/ has their fast paths",
    "data": "text -> documents -> tokens -> shards -> batches; labelled tables",
    "corpus": "the embedded text of a first run",
    "vectors": "static word vectors: word2vec, fastText, GloVe, phrases",
    "machine": "doctor: what this processor can do, found by trying",
    "objectives": "how text becomes examples (segments), what is masked, what is predicted (losses)",
    "tasks": "what labelled records teach: classify, pair, tag, qa, choice, seq2seq, embed",
    "model": "Encoder and Model: embed -> stack -> losses or task",
    "optim": "what train.* of a recipe says: optimizers, schedules, spike guard, kept checkpoints, distillation",
    "starts": "how weights begin: word frequencies, word vectors, weights of another model",
    "recipe": "Recipe: encoder, objective, train",
    "recipes": "named models as functions",
    "exchange": "read and write every format: our own, Hugging Face, sentence-transformers, ELMo",
    "inference": "TextEncoder: encode, predict, fill masks, generate, translate",
    "evaluate": "held-out metrics, reports of tasks, sliding windows",
    "screen": "how results are shown on a terminal",
    "train": "the loop, the run directory, checkpoints, resources, fine-tuning",
    "api": "what `import clozeworks as cw` offers",
    "quickstart": "the first two minutes",
    "cli": "one file a command",
}
