"""The letters that shapes are written in, and what they stand for."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

#: The letter for any number of axes, none included.
BATCH = "*B"


@dataclass(frozen=True)
class Letter:
    """One letter of a shape.

    Attributes
    ----------
    name : str
        As shapes have it.
    meaning : str
        For the table on the page.
    noun : str
        What there are so many of, in a word: ``positions``.
    may_be_empty : bool
        Whether it may be 0.
    empty : str
        The rule that refuses 0, where a rule does.
    divides : str
        The letter that it has to divide: grouped heads.
    """

    name: str
    meaning: str
    noun: str
    may_be_empty: bool = True
    empty: str = ""
    divides: str = ""


def _heads(name: str, meaning: str, noun: str = "heads", empty: str = "", divides: str = "") -> Letter:
    return Letter(name, meaning, noun, may_be_empty=False, empty=empty, divides=divides)


def _depth(name: str, meaning: str, empty: str = "", noun: str = "depth") -> Letter:
    return Letter(name, meaning, noun, may_be_empty=False, empty=empty)


#: Every letter, those of the operator first.
LETTERS: Mapping[str, Letter] = MappingProxyType(
    {
        letter.name: letter
        for letter in (
            Letter(BATCH, "batch axes, any number of them, none included", "batch"),
            _heads("Hq", "heads of queries and of the output", "query heads"),
            _heads(
                "Hkv",
                "heads of keys and values; `H` where they are as many as `Hq`",
                "key heads",
                empty="HEAD-2",
                divides="Hq",
            ),
            Letter("L", "query positions", "queries"),
            Letter("S", "key positions, which are the value positions too", "keys"),
            _depth("D", "depth of queries and keys", empty="ERR-5"),
            _depth("Dv", "depth of values", empty="ERR-5", noun="depth of the values"),
            _depth("E", "depth of tokens, before projection"),
            _depth("E'", "depth of a memory, before projection"),
            _depth("F", "depth of tokens, after projection", noun="features"),
            _heads("H", "heads of an array of a companion"),
            Letter("N", "positions of an array of a companion", "positions"),
            Letter("M", "parts that are merged", "parts"),
            Letter("C", "positions that a cache has room for", "capacity"),
            Letter("P", "pages that there are", "pages"),
            Letter("K", "positions of a page", "positions of a page"),
            Letter("T", "pages of a sequence", "pages of a sequence"),
        )
    }
)

#: Letters of heads: the axis of which two-dimensional inputs have none (SHAPE-2).
HEADS = ("Hq", "Hkv", "H")


def value_of(expression: str, letters: Mapping[str, int]) -> int | None:
    """Work out a size: a letter, a product of letters, or one letter less another.

    Parameters
    ----------
    expression : str
    letters : mapping of str to int
        What is known of them.

    Returns
    -------
    int or None
        None where a letter is not known.

    Examples
    --------
    >>> from attnspec.operations.letters import value_of
    >>> value_of("Hq*D", {"Hq": 2, "D": 8}), value_of("C-N", {"C": 6, "N": 2}), value_of("S", {})
    (16, 4, None)
    """
    total = 0
    for place, term in enumerate(expression.split("-")):
        product = 1
        for factor in term.split("*"):
            if factor not in letters:
                return None
            product *= letters[factor]
        total += product if place == 0 else -product
    return total
