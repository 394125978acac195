"""What this processor can do, found by trying."""
