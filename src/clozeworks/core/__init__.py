"""What everything else stands on: specs, batches, caches, counter-based random numbers, whole files."""
