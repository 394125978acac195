"""From text files to documents, a tokenizer and memory-mapped shards."""
