"""attnspec: the standard for scaled dot-product attention.

The chapters in this folder are the source of all rules, and this package loads them.
Importing the package is fast: names that need NumPy are loaded on first use.
"""

from typing import TYPE_CHECKING

from attnspec.errors import SpecError
from attnspec.operations import OPERATIONS, Operation
from attnspec.rule import (
    CHAPTERS,
    ConformanceLevel,
    Rule,
    Variant,
    claimable,
    find_rule,
    in_no_level,
    levels,
    rules,
)

if TYPE_CHECKING:
    from attnspec.case import Alternative, Case, Figure, Misuse, Provenance
    from attnspec.golden import cases, find_case

__version__ = "2026.11.25.dev97"

__all__ = [
    "CHAPTERS",
    "OPERATIONS",
    "Alternative",
    "Case",
    "ConformanceLevel",
    "Figure",
    "Misuse",
    "Operation",
    "Provenance",
    "Rule",
    "SpecError",
    "Variant",
    "__version__",
    "cases",
    "claimable",
    "find_case",
    "find_rule",
    "in_no_level",
    "levels",
    "rules",
]


def __getattr__(name: str) -> object:
    """Load the names of cases on demand, because pytest imports this package at every start."""
    if name in __all__:
        from attnspec import case, golden

        return getattr(golden if name in ("cases", "find_case") else case, name)
    raise AttributeError(f"module 'attnspec' has no attribute {name!r}")
