"""The words for the traits of calls."""

from attnspec.conformance import traits
from attnspec.dtypes import DTYPES

#: The dtypes of integers that are named where an argument has them.
INTEGERS = ("int8", "int16", "uint8", "uint16", "uint32", "uint64")
#: What calls have in common, in words. An option has its own name.
TRAITS = {
    traits.NO_SCALE: "without a scale",
    traits.SHARED: "with shared key heads",
    traits.NOTHING: "with no queries, keys or batch entries",
    traits.EMPTY: "with a row that has nothing to attend to",
    traits.SPECIAL: "with NaN or infinity",
    traits.LARGE: "with large scores",
    traits.MORE_QUERIES: "with more queries than keys (L > S)",
    traits.FEWER_QUERIES: "with fewer queries than keys (L < S)",
    traits.OTHER_QUERIES: "with another number of queries than keys (L != S)",
    traits.BATCHED: "with several batch entries",
    traits.HEADS: "with several heads",
    traits.ODD_HEADS: "with a number of heads that is no power of two",
    traits.UNPAIRED: "with an odd number of features",
    traits.MASKED: "with a row that may attend to some keys only",
    traits.OTHER_DEPTH: "with values of another depth than the queries",
    traits.TILED: "with more than 16 keys or queries",
    traits.TILED_32: "with more than 32 keys or queries",
    traits.TILED_64: "with more than 64 keys or queries",
    traits.RISING: "with a row whose largest score comes after its first 16 keys",
    traits.RISING_32: "with a row whose largest score comes after its first 32 keys",
    traits.RISING_64: "with a row whose largest score comes after its first 64 keys",
    traits.UNEQUAL: "with sequences of several lengths",
    traits.WHOLE_PAGES: "with a length that fills its last page",
    traits.ONE_QUERY: "with one query",
    traits.OPEN_LEFT: "with a window open on the left",
    traits.OPEN_RIGHT: "with a window open on the right",
    traits.CLOSED_LEFT: "with a window whose left bound is 0",
    traits.UNEQUAL_BLOCKS: "with blocks of other sizes of queries and of keys",
    traits.ROWS_PAST: "with rows after the last sequence",
    traits.LAST_BLOCK: "with keys that do not fill the last block",
    traits.ANY_ORDER: "with a list that has a block after a later one",
    traits.HUGE: "with numbers near the largest of their dtype",
    traits.FAR: "with an integer from 2**31 - 1 on",
    traits.VIEWED: "with arrays that do not lie in rows",
    traits.OTHER_STRIDES: "with a key and a value of different strides",
    traits.GRADIENT: "for gradients",
    **{dtype: f"in {dtype}" for dtype in DTYPES},
}


def trait_text(trait: str) -> str:
    """Describe what calls have in common, for use after the word "calls"."""
    option = traits.option_of(trait)
    for axis in traits.AXES_OF_PAIRS:
        if trait == traits.repeated(option, axis):
            return f"with a `{option}` that has one {axis} for several"
    numbers = {
        traits.repeated_inside(option): f"with a `{option}` that has an axis of 1 inside a longer one",
        traits.negative(option): f"with a negative `{option}`",
        traits.zero(option): f"with `{option}` of 0",
        traits.by_entry(option): f"with `{option}` that differ between batch entries",
    }
    if trait in TRAITS:
        return TRAITS[trait]
    argument, _, dtype = trait.rpartition(" of ")
    if argument and dtype in INTEGERS:
        return f"with a `{argument}` of {dtype}"
    name, multiple, unit = trait.partition(traits.NOT_A_MULTIPLE)
    if multiple:
        return f"with a number of {name} that is no multiple of {unit}"
    if trait.startswith(traits.MORE_THAN):
        return f"with {trait}"
    return numbers.get(trait, f"with `{trait}`")
