"""Correct loops over tiles, splits and windows, in named steps. Entries of `edges` replace one step."""
