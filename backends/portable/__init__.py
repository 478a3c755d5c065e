"""Attention in Array API calls."""
