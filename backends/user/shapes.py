"""Arrays whose axes a function has in another order, or joined, by the letters of their shapes."""

from collections.abc import Iterator, Mapping
from itertools import chain, permutations, product
from math import prod
from types import MappingProxyType
from typing import Any

from attnspec import Operation
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.library.library import permute, reshape
from attnspec.operations.letters import BATCH, HEADS, LETTERS

#: The letter of the numbers in `_VECTOR` bytes, in which an axis such as `D` is split: `D/x` and `x`.
_PART, _VECTOR = "x", 16
#: The shapes of pages of vLLM, and of the kernels for TPUs in JAX.
_PAGES = (
    MappingProxyType({"key_pages": "P, Hkv, D/x, K, x", "value_pages": "P, Hkv, Dv, K"}),
    MappingProxyType({"key_pages": "Hkv, P, K, D", "value_pages": "Hkv, P, K, Dv"}),
)
#: The letters of arrays that are no weights.
_OF_CALLS = frozenset((BATCH, "L", "S", "K", "N"))


def check_shapes(name: str, shapes: Mapping[str, str], form: Operation) -> None:
    """Refuse shapes with other letters than those of an argument."""
    for argument, shape in shapes.items():
        own = form.arguments[argument].shape if argument in form.arguments else ()
        letters = [letter for letter in own if letter != BATCH]
        parts = [*chain(*_axes(shape))]
        split = [letter for letter in parts if letter.endswith(f"/{_PART}")]
        joined = [letter.removesuffix(f"/{_PART}") for letter in parts if letter != _PART]
        if sorted(joined) != sorted(letters) or len(split) != parts.count(_PART) or len(split) > 1:
            raise BackendError(
                f"backend {name}: shapes: expected the letters {', '.join(letters) or 'of an argument'} "
                f"in some order for {argument}, got {shape!r}"
            )


def in_shape(array: Any, own: tuple[str, ...], shape: str, xp: Any) -> Any:
    """Bring an array into a shape such as ``Dc, Hq*D``. One with other axes is for the function to refuse."""
    letters = [letter for letter in own if letter != BATCH]
    outer = array.ndim - len(letters)
    if outer < 0 or (outer and BATCH not in own):
        return array
    split = next((x for x in chain(*_axes(shape)) if x.endswith(f"/{_PART}")), "")
    if split:
        array, letters = _split(array, letters, split)
    order = [outer + letters.index(letter) for axis in _axes(shape) for letter in axis]
    sizes = [prod(array.shape[outer + letters.index(letter)] for letter in axis) for axis in _axes(shape)]
    turned = permute(array, [*range(outer), *order], xp)
    return reshape(turned, (*array.shape[:outer], *sizes))


def _split(array: Any, letters: list[str], split: str) -> tuple[Any, list[str]]:
    """Split the axis of a letter into parts of some bytes, and name both axes."""
    at, number = letters.index(split.removesuffix(f"/{_PART}")), _VECTOR // array.dtype.itemsize
    axis = array.ndim - len(letters) + at
    size = array.shape[axis]
    if size % number:
        raise Unsupported(f"the function takes vectors in parts of {number} numbers, got {size}")
    whole = (*array.shape[:axis], size // number, number, *array.shape[axis + 1 :])
    return reshape(array, whole), [*letters[:at], split, _PART, *letters[at + 1 :]]


def shapes_to_try(form: Operation) -> Iterator[dict[str, str]]:
    """Yield shapes of the weights of an operation, those without a change and with the same change first."""
    arguments = (form.arguments[name] for name in form.arrays)
    weights = {
        x.name: x.shape for x in arguments if len(x.shape) > 1 and {*x.shape} <= LETTERS.keys() - _OF_CALLS
    }
    choices = product(*([*enumerate(_shapes_of(own))] for own in weights.values()))
    for choice in sorted(choices, key=lambda choice: len({number for number, _ in choice}) > 1):
        yield {
            name: x
            for (name, own), (_, x) in zip(weights.items(), choice, strict=True)
            if x != ", ".join(own)
        }
    yield from (dict(pages) for pages in _PAGES if pages.keys() <= {*form.arrays})


def _shapes_of(own: tuple[str, ...]) -> Iterator[str]:
    """Yield a shape in every order, and with heads joined to another axis."""
    yield from map(", ".join, permutations(own))
    heads = next((letter for letter in own if letter in HEADS), "")
    for other in (letter for letter in own if heads and letter != heads and len(own) > 2):
        rest = [letter for letter in own if letter not in (heads, other)]
        yield ", ".join([*rest, f"{heads}*{other}"])
        yield ", ".join([f"{heads}*{other}", *rest])


def _axes(shape: str) -> list[list[str]]:
    return [axis.strip().split("*") for axis in shape.split(",")]
