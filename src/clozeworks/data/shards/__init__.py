"""From documents to memory-mapped shards of tokens."""
