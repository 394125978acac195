"""Weights in safetensors files: in parts of a distributed run, and with many zeros."""
