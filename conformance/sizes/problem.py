"""What a group of sizes asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from attnspec.formula import Formula


@dataclass(frozen=True)
class Asked:
    """A problem that a group asks for.

    Attributes
    ----------
    formula : Formula
    dtype : str
    name : str
        The end of its id; empty for a number.
    layout : mapping of str to str
    operation : str
    """

    formula: Formula
    dtype: str = "float32"
    name: str = ""
    layout: Mapping[str, str] = field(default_factory=dict)
    operation: str = "attention"
