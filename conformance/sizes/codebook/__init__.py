"""The codebook oracle: exact rows of attention at any length, for problems by formula.

Queries and keys repeat a few rows. So the numerator of an output is a sum of few proven exponentials,
each times an exact sum of integers. It shares no code with the reference and the other oracles.
"""
