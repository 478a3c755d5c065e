"""Adapters: the attention of libraries behind the one signature."""
