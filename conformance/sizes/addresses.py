"""Arguments with more than a million elements."""

from collections.abc import Iterator
from itertools import product

from attnspec.conformance.sizes.problem import Asked
from attnspec.formula import Formula

#: Axes of masks with 2^20 elements and more, in problems with these batch entries and heads.
_AXES = ((("L", "S"), (1,), 2), (("B", "H", "L", "S"), (2,), 2), (("H", "L", "S"), (3,), 3))
_SIDE = 1025
#: L, S, D and Dv with 2^20 elements and more in the query, in the key, in the value, in the output.
_SIZES = ((4100, 5, 256, 8), (3, 4100, 256, 8), (5, 4100, 8, 256), (4100, 5, 8, 256))


def addresses() -> Iterator[Asked]:
    """A mask, a bias, a dropout mask or another array has more than a million elements."""
    names = ("mask", "bias", "dropout_mask")
    for number, (name, (axes, batch, heads)) in enumerate(product(names, _AXES)):
        options = {name: axes} | ({"dropout_rate": 0.5} if name == "dropout_mask" else {})
        sizes = (_SIDE, _SIDE + number, 16, 8, batch, heads, heads)
        yield Asked(Formula(*sizes, seed=number, options=options))
    for number, sizes_of_one in enumerate(_SIZES):
        yield Asked(Formula(*sizes_of_one, (1,), 2, 2, seed=number))
