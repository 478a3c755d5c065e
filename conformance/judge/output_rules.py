"""Rules about outputs that not every implementation returns."""

from collections.abc import Collection

#: The output that a backend must return for a rule to be tested.
OUTPUT_OF = {
    "SHAPE-4": "weights",
    "SOFT-4": "weights",
    "SHAPE-8": "lse",
    "SOFT-6": "lse",
    "SOFT-7": "lse",
    "DROP-3": "lse",
    "NUM-7": "lse",
    "SOFT-8": "max",
    "SOFT-9": "max",
}


def of_outputs(rules: tuple[str, ...], returns: Collection[str]) -> tuple[str, ...]:
    """Leave out rules about outputs that are not returned, except the first rule of the case.

    Examples
    --------
    >>> from attnspec.conformance.judge.output_rules import of_outputs
    >>> of_outputs(("MASK-6", "SOFT-7"), ()), of_outputs(("MASK-6", "SOFT-7"), ("lse",))
    (('MASK-6',), ('MASK-6', 'SOFT-7'))
    """
    first, *others = rules
    return first, *(rule for rule in others if OUTPUT_OF.get(rule, "") in ("", *returns))
