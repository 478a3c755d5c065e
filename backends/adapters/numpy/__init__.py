"""Attention in NumPy: the reference."""
