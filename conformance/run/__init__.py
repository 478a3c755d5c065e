"""Running: the plan of the cases, the processes that judge them, and the loop that yields the verdicts."""

from pathlib import Path

#: The folder that represents the suite in pytest's arguments.
SUITE = Path(__file__).parents[1]
