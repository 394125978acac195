"""What each command does. These modules may import torch; the command line imports them when they run."""
