"""The sizes of a call, by letter, and the arguments that do not fit them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from attnspec.dtypes import FORMATS, name_of, numbers_of
from attnspec.errors import SpecError
from attnspec.operations import LETTERS, OPERATIONS, Argument, Operation, Shape
from attnspec.operations.letters import BATCH, HEADS, ONE_MORE, value_of

Arguments = Mapping[str, Any]


@dataclass
class Sizes:
    """The sizes of the axes of a call."""

    letters: dict[str, int] = field(default_factory=dict)  # the sizes by letter
    batch: tuple[int, ...] | None = None  # the batch axes, or None if they are not known yet
    headless: bool = False  # whether arrays have no axes of batch and heads (SHAPE-2)


def sizes(operation: str, arguments: Arguments) -> Sizes:
    """Return the sizes of a call, from its arrays and its numbers of heads."""
    sizes, misfits = bound(operation, arguments)
    for misfit in misfits:
        raise SpecError(misfit)
    return sizes


def shape_of(shape: Shape, sizes: Sizes) -> tuple[int, ...]:
    """Convert a shape from letters to numbers."""
    axes = _axes(shape, sizes)
    unknown = [axis for axis in axes if isinstance(axis, str)]
    if unknown:
        raise SpecError(f"shape {spelled(shape)}: got no size of {', '.join(unknown)}")
    return tuple(int(axis) for axis in axes)


def output_shapes(
    operation: str, arguments: Arguments, *, counted: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every output of a valid call. A list may have that of its expected value."""
    result = sizes(operation, arguments)
    convention = arguments.get("convention")
    return {
        output.name: (
            tuple(arguments[output.of].shape)
            if output.of
            else shape_of((*output.shape[:-1], output.lists + ONE_MORE), result)
            if output.lists and counted
            else shape_of(turned(output.shape) if convention in output.turns else output.shape, result)
        )
        for output in OPERATIONS[operation].results
        if (not output.of or arguments.get(output.of) is not None)
        and (not output.apart or arguments.get(output.option) is True)
    }


def spelled(shape: tuple[str | int, ...]) -> str:
    """Spell a shape of letters and numbers as Python does."""
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"


def bound(operation: str, arguments: Arguments) -> tuple[Sizes, list[str]]:
    """Find the sizes of a call, and continue if something does not fit."""
    form = OPERATIONS[operation]
    arrays = [
        (argument, arguments[argument.name])
        for argument in form.in_order
        if argument.shape and is_array(arguments.get(argument.name))
    ]
    sizes = Sizes()
    convention = arguments.get("convention")
    for argument in form.named:
        count = arguments.get(argument.name)
        if argument.binds and type(count) is int and count > 0:
            sizes.letters[argument.binds] = count
    problems: list[str] = []
    for argument, array in arrays:
        shape = turned(argument.shape) if convention in argument.turns else argument.shape
        if BATCH in shape and sizes.batch is None and form.headless:
            sizes.headless = len(array.shape) == len(shape) - 2
        if sizes.headless and sizes.batch is None:
            sizes.batch, sizes.letters = (), {**dict.fromkeys(HEADS, 1), **sizes.letters}
        problems += (
            _broadcast(argument, array, shape, sizes)
            if argument.broadcasts
            else _bind(argument, array, shape, sizes)
        )
        _fall_back(form, arguments, sizes)
    return sizes, problems or _divided(form, sizes)


def _fall_back(form: Operation, arguments: Arguments, sizes: Sizes) -> None:
    for letter, (name, other) in form.otherwise.items():
        if arguments.get(name) is None and other in sizes.letters:
            sizes.letters.setdefault(letter, sizes.letters[other])


def _axes(shape: Shape, sizes: Sizes) -> list[int | str]:
    """Convert a shape to numbers, and keep letters whose size is not known: ``3*D``."""
    axes: list[int | str] = []
    for place, letter in enumerate(shape):
        if letter == BATCH:
            axes += [BATCH] if sizes.batch is None else sizes.batch
        elif not (sizes.headless and letter in HEADS and place and shape[place - 1] == BATCH):
            size = value_of(letter, sizes.letters)
            if size is None:
                known = (str(sizes.letters.get(factor, factor)) for factor in letter.split("*"))
                axes.append("*".join(known))
            else:
                axes.append(size)
    return axes


def _bind(argument: Argument, array: Any, shape: Shape, sizes: Sizes) -> list[str]:
    got = tuple(array.shape)
    axes = _axes(shape, sizes)
    if BATCH in axes:
        place = axes.index(BATCH)
        extra = len(got) - (len(axes) - 1)
        if extra >= 0:
            sizes.batch = got[place : place + extra]
            axes[place : place + 1] = sizes.batch
    fits = len(axes) == len(got) and all(
        _learn(axis, size, sizes) if isinstance(axis, str) else axis == size
        for axis, size in zip(axes, got, strict=True)
    )
    return [] if fits else [f"argument {argument.name}: expected shape {spelled(tuple(axes))}, got {got}"]


def _learn(axis: str, size: int, sizes: Sizes) -> bool:
    """Determine the only unknown letter of an axis from its size."""
    if axis.endswith(ONE_MORE):
        return size > 0 and _learn(axis.removesuffix(ONE_MORE), size - 1, sizes)
    known = 1
    unknown = []
    for factor in axis.split("*"):
        if factor.isdigit() or factor in sizes.letters:
            known *= int(factor) if factor.isdigit() else sizes.letters[factor]
        else:
            unknown.append(factor)
    if not unknown:
        return known == size
    if len(unknown) > 1 or known == 0 or size % known:
        return False
    sizes.letters[unknown[0]] = size // known
    return size > 0 or LETTERS[unknown[0]].may_be_empty


def _divided(form: Operation, sizes: Sizes) -> list[str]:
    """Find numbers of heads that do not divide, reported for the first argument that has them."""
    return [
        f"argument {name}: expected a number of heads that divides {whole}, got {sizes.letters[letter]}"
        for letter, known in LETTERS.items()
        if letter in sizes.letters and (whole := sizes.letters.get(known.divides)) is not None
        if sizes.letters[letter] == 0 or whole % sizes.letters[letter]
        for name in [
            name for name, argument in form.arguments.items() if letter in (argument.binds, *argument.shape)
        ][:1]
    ]


def _broadcast(argument: Argument, array: Any, shape: Shape, sizes: Sizes) -> list[str]:
    got, whole = tuple(array.shape), _axes(shape, sizes)
    tail = whole[len(whole) - len(got) :] if len(got) <= len(whole) else None
    for axis, size in zip(tail or (), got, strict=False):
        if isinstance(axis, str) and axis in LETTERS and axis != BATCH:
            sizes.letters[axis] = size  # no other array says how long a list is
    if tail is None or not all(
        isinstance(m, str) or n in (1, m) or (argument.by_blocks and 0 < n < m and m % n == 0)
        for n, m in zip(got, tail, strict=True)
    ):
        expected = f"a shape that broadcasts to {spelled(tuple(whole))}"
        return [f"argument {argument.name}: expected {expected}, got {got}"]
    return []


def is_array(x: Any) -> bool:
    """Whether something is an array of any library, and not a scalar of NumPy."""
    return hasattr(x, "shape") and hasattr(x, "__len__")


def turned(shape: Shape) -> Shape:
    """Exchange the last two axes. A vector does not change."""
    return (*shape[:-2], shape[-1], shape[-2]) if len(shape) > 1 else shape


#: What an argument must be, in words.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "floating": "floating-point numbers",
        "lse": "floating-point numbers",
        "boolean": "booleans",
        "integer": "integers",
        "array": "an array",
        "integers": "an integer or integers",
        "number": "a finite number",
        "flag": "True or False",
        "window": "two, each None or an integer from 0",
    }
)


def misfits(operation: str, arguments: Arguments) -> list[str]:
    """List the reasons to refuse a call, with a line for each argument at fault."""
    known = OPERATIONS[operation].arguments
    # None means not given, but a flag must not be None.
    given = {
        name: x
        for name, x in arguments.items()
        if name in known and not (x is None and known[name].kind != "flag")
    }
    result, problems = bound(operation, given)
    leading = next((x for x in given.values() if is_array(x)), None)
    return [
        *(problem for name, x in given.items() for problem in _of_dtype(known[name], x, leading)),
        *problems,
        *(problem for name, x in given.items() for problem in _of_form(known[name], x, result)),
        *(
            f"argument {name}: got {given[name]} without {other}"
            for name in given
            for other in known[name].needs
            if other not in given and (is_array(given[name]) or given[name] != known[name].default)
        ),
        *(
            f"argument {name}: got {name} and {other}, which exclude each other"
            for name in given
            for other in known[name].excludes
            if other in given
        ),
    ]


def _of_dtype(argument: Argument, x: Any, leading: Any) -> Iterator[str]:
    if not is_array(x) or not argument.shape:
        return
    wanted = "floating" if argument.numbers == "lse" else argument.numbers
    if numbers_of(x) != wanted:
        yield f"argument {argument.name}: expected {WORDS[argument.numbers]}, got {x.dtype}"
        return
    of = FORMATS.get(name_of(leading.dtype))
    if argument.numbers == "lse" and of is not None and name_of(x.dtype) not in of.accepted_of_lse:
        yield f"argument {argument.name}: expected dtype {' or '.join(of.accepted_of_lse)}, got {x.dtype}"
    if "mixed" in argument.refusals and x.dtype != leading.dtype:
        yield f"argument {argument.name}: expected dtype {leading.dtype} as in the first array, got {x.dtype}"


def _of_form(argument: Argument, x: Any, sizes: Sizes) -> Iterator[str]:
    """Find faults of arguments that are not arrays, and of the numbers of arrays with bounds."""
    expected = _expected(argument, sizes)
    if argument.kind == "window":
        fits = is_window(x)
    elif argument.kind == "word":
        fits = x in argument.words
    elif argument.kind == "flag":
        fits = isinstance(x, bool)
    elif is_array(x) and argument.sums:
        counts = x.reshape(-1).tolist()
        fits = min(counts, default=0) >= 0 and sum(counts) == value_of(argument.sums, sizes.letters)
    elif is_array(x):
        fits = argument.shape != () and (
            argument.bounds is None or all(_within(argument, n, sizes) for n in x.reshape(-1).tolist())
        )
        fits = fits and (not argument.ascending or _ascends(argument, x.reshape(-1).tolist(), sizes))
    elif argument.kind == "array":
        fits = False
    elif argument.kind == "number":
        fits = _is_number(x) and abs(x) <= FORMATS["float64"].largest and _within(argument, x, sizes)
    else:
        fits = type(x) is int and _within(argument, x, sizes)
    if not fits:
        yield f"argument {argument.name}: expected {expected}, got {x}"


def _expected(argument: Argument, sizes: Sizes) -> str:
    if argument.kind == "word":
        return " or ".join(argument.words)
    if argument.sums:
        return f"integers from 0 that add up to {value_of(argument.sums, sizes.letters)}"
    words = WORDS[argument.kind] if argument.kind != "integer" else "an integer"
    if argument.ascending:
        ends = ", do not decrease and end at the most" if argument.covers else " and do not decrease"
        words = f"integers that begin at the least{ends},"
    if argument.bounds is None or argument.kind == "window":
        return words
    most = value_of(str(argument.bounds.most), sizes.letters)
    beside = "" if most is None else f", which is {most}"
    return f"{words} {argument.bounds}{beside}"


def _ascends(argument: Argument, numbers: list[int], sizes: Sizes) -> bool:
    least = argument.bounds.least if argument.bounds else 0
    last = value_of(str(argument.bounds.most), sizes.letters) if argument.bounds and argument.covers else None
    return numbers[:1] == [least] and numbers == sorted(numbers) and last in (None, numbers[-1])


def _within(argument: Argument, number: float, sizes: Sizes) -> bool:
    bounds = argument.bounds
    if bounds is None:
        return True
    most = value_of(bounds.most, sizes.letters) if isinstance(bounds.most, str) else bounds.most
    enough = number > bounds.least if bounds.above else number >= bounds.least
    too_much = most is not None and (number >= most if bounds.below else number > most)
    return enough and not too_much and (bounds.step == 1 or number % bounds.step == 0)


def is_window(x: Any) -> bool:
    """Whether something is a pair of bounds, each None or an integer from 0."""
    if not isinstance(x, tuple | list) or len(x) != 2:
        return False
    return all(side is None or (type(side) is int and side >= 0) for side in x)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)
