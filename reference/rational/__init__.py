"""The second oracle: rationals around one exponential; it shares no code with the first or the reference."""
