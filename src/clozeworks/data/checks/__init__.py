"""What `data/check.py` is made of: looks over bytes, characters, lines and a sample, and the findings they lead to."""
