"""Weights and tokens as int8: the parts that hold them, their products, and what is fused around these."""
