"""Compiled kernels: passes over text and pairs, and the tables that they draw from."""
