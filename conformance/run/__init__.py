"""Running the suite: in a process of its own, as a program, by files."""
