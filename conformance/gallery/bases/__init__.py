"""Correct loops over tiles, splits and windows, in named steps: what entries of `edges` differ from."""
