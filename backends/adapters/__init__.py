"""Adapters from functions of libraries to the canonical signature."""
