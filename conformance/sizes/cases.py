"""The sized cases: calls by formula at the sizes at which kernels take other paths."""

from collections.abc import Iterator
from functools import cache
from itertools import count

from attnspec.case import SIZES
from attnspec.conformance.sizes.groups import (
    Problem,
    addresses,
    backward,
    backward_of_some,
    codes,
    covering,
    decode,
    heads,
    long,
    samples,
    views,
)
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.conformance.suite.options import OPTIONS
from attnspec.conformance.traits import SIZED_GROUPS
from attnspec.operations.operation import primal

#: The groups, each with a function that yields its problems.
_GROUPS = {
    "covering": covering,
    "decode": decode,
    "heads": heads,
    "addresses": addresses,
    "views": views,
    "long": long,
    "sampled": samples,
    "codes": codes,
    "backward": backward,
    "backward-of-some": backward_of_some,
}
#: The options of a problem by formula that have other names in the suite.
_MASKS = ("mask", "bias", "is_causal", "window", "key_lengths", "query_lengths", "segments")
#: The rules of gradients about options. All other masks disallow pairs.
_OF_GRADIENTS = {
    **dict.fromkeys((*_MASKS, "query_offset"), "GRAD-9"),
    "d_lse": "GRAD-6",
    "dropout_mask": "GRAD-8",
    "sinks": "GRAD-7",
    "softcap": "GRAD-5",
}


@cache
def sized_cases() -> tuple[SizedCase, ...]:
    """List every sized case, those with the least work first."""
    found = [item for group, make in _GROUPS.items() for item in _group_cases(group, make())]
    return tuple(sorted(found, key=lambda item: item.work))


def _group_cases(group: str, problems: Iterator[Problem]) -> Iterator[SizedCase]:
    numbers = count(1)
    for problem in problems:
        title = " ".join((_GROUPS[group].__doc__ or "").split())
        name = f"{SIZED_GROUPS}{group}"
        yield SizedCase(
            f"{SIZES}-{group}-{problem.name or next(numbers)}",
            title,
            _rules(problem),
            name,
            problem.formula,
            problem.dtype,
            problem.layout,
            problem.operation,
        )


def _rules(problem: Problem) -> tuple[str, ...]:
    """Return the rules of the options, with MASK-4 first if several of them mask; or those of gradients."""
    options = problem.formula.options
    if problem.operation != primal(problem.operation):
        rules = [_OF_GRADIENTS[name] for name in options if name in _OF_GRADIENTS]
        if problem.formula.heads != problem.formula.key_heads:
            rules.append("GRAD-3")
        return tuple(dict.fromkeys(("GRAD-19", "GRAD-1", *rules)))
    masks = [name for name in options if name in _MASKS]
    rules = ["NUM-8"] if problem.layout else ["MASK-4"] if len(masks) > 1 else []
    rules += [
        OPTIONS["dropout" if name == "dropout_mask" else name].rule
        for name in (*masks, *options)
        if name in OPTIONS or name == "dropout_mask"
    ]
    if problem.formula.heads != problem.formula.key_heads:
        rules.append("HEAD-1")
    return tuple(dict.fromkeys((*rules, "SOFT-3", "NUM-3")))
