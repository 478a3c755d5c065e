"""attnspec: the standard for scaled dot-product attention.

The prose in the chapters beside this file is the source; this package loads it.
Importing it needs NumPy and ml_dtypes alone.
"""

import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows

from attnspec.case import Alternative, Case, Figure, Misuse, Provenance, cases, find_case
from attnspec.errors import SpecError
from attnspec.rule import CHAPTERS, Rule, Variant, find_rule, rules
from attnspec.signature import OPERATIONS, Operation

__version__ = "2026.11.21"

__all__ = [
    "CHAPTERS",
    "OPERATIONS",
    "Alternative",
    "Case",
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
    "rules",
]
