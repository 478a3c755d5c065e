"""attnspec: the standard for scaled dot-product attention.

The prose in the chapters beside this file is the source; this package loads it.
Importing it loads next to nothing; what needs NumPy is loaded when it is asked for.
"""

from typing import TYPE_CHECKING

from attnspec.errors import SpecError
from attnspec.level import ConformanceLevel, in_no_level, levels
from attnspec.operations import OPERATIONS, Operation
from attnspec.rule import CHAPTERS, Rule, Variant, find_rule, rules

if TYPE_CHECKING:
    from attnspec.case import Alternative, Case, Figure, Misuse, Provenance
    from attnspec.golden import cases, find_case

__version__ = "2026.11.21"

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
    "find_case",
    "find_rule",
    "in_no_level",
    "levels",
    "rules",
]


def __getattr__(name: str) -> object:
    """Load the cases' names late: pytest imports this package whenever it starts."""
    if name in __all__:
        from attnspec import case, golden

        return getattr(golden if name in ("cases", "find_case") else case, name)
    raise AttributeError(f"module 'attnspec' has no attribute {name!r}")
