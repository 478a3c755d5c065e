"""The error budget: the largest error of a correct implementation, element by element."""
