"""The letters of shapes and their meaning."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

#: The letter for any number of axes, none included.
BATCH = "*B"


@dataclass(frozen=True)
class Letter:
    """One letter of a shape."""

    name: str  # the letter as shapes spell it
    meaning: str  # the meaning, for the table of the chapter
    noun: str  # the noun for what it counts, such as ``positions``
    may_be_empty: bool = True  # whether it may be 0
    empty: str = ""  # the rule that refuses 0, if there is one
    zero: str = ""  # another rule about 0, for letters without `empty`
    divides: str = ""  # the letter that it must divide, for grouped heads


def _size(name: str, meaning: str, noun: str = "depth", **rules: str) -> Letter:
    return Letter(name, meaning, noun, may_be_empty=False, **rules)


#: Every letter, those of the operator first.
LETTERS: Mapping[str, Letter] = MappingProxyType(
    {
        letter.name: letter
        for letter in (
            Letter(BATCH, "batch axes, any number of them or none", "batch"),
            _size("Hq", "heads of queries and of the output", "query heads", zero="ERR-17"),
            _size(
                "Hkv",
                "heads of keys and values; `H` if the number equals `Hq`",
                "key heads",
                empty="HEAD-2",
                divides="Hq",
            ),
            Letter("L", "query positions", "queries"),
            Letter("S", "key positions, which are also the value positions", "keys"),
            _size("D", "depth of queries and keys", empty="ERR-5"),
            _size("Dv", "depth of values", "depth of the values", empty="ERR-5"),
            _size("E", "depth of tokens, before projection"),
            _size("E'", "depth of a memory, before projection"),
            _size("F", "depth of tokens, after projection", "features"),
            _size("H", "heads of an array of a companion", "heads"),
            Letter("N", "positions of an array of a companion", "positions"),
            Letter("M", "parts that are merged", "parts"),
            Letter("C", "positions that a cache has room for, or that a table has", "capacity"),
            Letter("P", "pages in the cache", "pages"),
            Letter("K", "positions of a page", "positions of a page"),
            Letter("T", "pages of a sequence", "pages of a sequence"),
            Letter("G", "sequences of a packed row", "sequences"),
            _size("Lb", "queries of a block", "queries of a block", zero="SPARSE-10"),
            _size("Sb", "keys of a block", "keys of a block", zero="SPARSE-10"),
            Letter("W", "places of a list", "places of a list"),
            Letter("Z", "shards of queries and of keys", "shards"),
            _size("X", "parts of the heads", "parts of the heads", zero="SHARD-11"),
            _size("Dc", "depth of the latent", "depth of the latent"),
            _size("Dr", "depth of the rotary part beside a latent", "depth of the rotary part"),
            _size("R", "rotary depth; `D` if none is given", "rotary depth", zero="POS-6"),
            _size("A", "axes of positions", "axes of positions"),
            Letter("U", "blocks of codes of a row", "blocks"),
            _size("Y", "bytes of the codes of a block", "bytes of a block", zero="QUANT-9"),
        )
    }
)

#: Letters of heads. Two-dimensional inputs lack this axis (SHAPE-2).
HEADS = ("Hq", "Hkv", "H")


#: The end of an expression for one more than a size: there are `G+1` boundaries of `G` sequences.
ONE_MORE = "+1"


def value_of(expression: str, letters: Mapping[str, int]) -> int | None:
    """Compute a size: a number, a letter, a product or difference, a quotient rounded up, or one more."""
    if expression in letters:
        return letters[expression]
    if expression.endswith(ONE_MORE):
        less = value_of(expression.removesuffix(ONE_MORE), letters)
        return None if less is None else less + 1
    whole, quotient, part = expression.partition("/")
    if quotient:
        parts = int(part) if part.isdigit() else letters.get(part)
        size = value_of(whole, letters)
        return None if parts is None or size is None else -(-size // parts)
    total = 0
    for place, term in enumerate(expression.split("-")):
        product = 1
        for factor in term.split("*"):
            if factor not in letters and not factor.isdigit():
                return None
            product *= int(factor) if factor.isdigit() else letters[factor]
        total += product if place == 0 else -product
    return total
