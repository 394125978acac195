"""Files and Python objects into records: numbered, with a place that messages name; below text and tables."""
