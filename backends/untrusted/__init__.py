"""A function in a process of its own, which holds no expected value and cannot import attnspec."""
