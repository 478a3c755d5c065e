"""The variants that the second oracle computes."""

from collections.abc import Mapping
from types import MappingProxyType

from attnspec.dialect import of_routes

#: Variants that change values, by rule.
SHOWN = MappingProxyType(
    {
        "SCORE-2": ("one",),
        "SCORE-5": ("after-bias",),
        "MASK-2": ("added",),
        "MASK-3": ("bottom-right",),
        "MASK-6": ("nan", "uniform"),
        "MASK-8": ("exclusive-left",),
        "SOFT-6": ("base-2",),
        "SOFT-7": ("plus-infinity", "finite"),
        "HEAD-1": ("tiled",),
        "PACK-5": ("bottom-right",),
        "POS-8": ("signed", "key-position"),
        "POS-15": ("alternating",),
        "POS-21": ("by-rotations",),
        "POS-22": ("both-or-none",),
        "GRAD-6": ("ignored",),
        "GRAD-10": ("nan", "uniform"),
    }
)


def checked(dialect: Mapping[str, str] | None) -> Mapping[str, str]:
    """Refuse unknown variants, and drop those that change only rounding or refusals.

    Examples
    --------
    >>> from attnspec.reference.rational.dialect import checked
    >>> checked({"MASK-6": "nan", "NUM-5": "storage"})
    {'MASK-6': 'nan'}
    """
    kept = {}
    for rule, variant in (dialect or {}).items():
        if rule == "SHAPE-6" or rule.startswith("NUM-"):
            continue
        if not set(of_routes(variant).values()) <= set(SHOWN.get(rule, ())):
            known = ", ".join(SHOWN.get(rule, ())) or "no variant"
            raise ValueError(f"dialect: expected {known} for {rule}, got {variant!r}")
        kept[rule] = variant
    return kept
