"""Attention implementations that are wrong in one named way, and correct ones: what the suite is tested by."""
