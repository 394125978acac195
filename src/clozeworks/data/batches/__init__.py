"""From shards or labelled examples to batches."""
