"""Files of vectors: safetensors of our own, and the text and binary formats of word2vec and GloVe."""
