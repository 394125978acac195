"""Models on disk: our three files, Hugging Face directories, and nothing that needs unpickling."""
