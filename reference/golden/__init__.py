"""Writes, checks and exports the golden vectors."""
