"""Valid calls, made from the declared operations, and the possible faults of each argument."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.backends.user.scales import CODES
from attnspec.operations import LETTERS, OPERATIONS, Argument
from attnspec.operations.letters import BATCH, HEADS, ONE_MORE, value_of
from attnspec.sizes import Sizes, shape_of

#: Two batch entries of two heads, three queries and five keys of depth 4. Numbers of heads and depths are the
#: same, so that backends without grouped heads or other depths are tested too.
SIZES: Mapping[str, int] = (
    {"Hq": 2, "Hkv": 2, "H": 2, "L": 3, "S": 5, "D": 4, "Dv": 4, "E": 2, "E'": 2, "F": 3}
    | {"N": 1, "M": 1, "C": 4, "P": 2, "K": 3, "T": 2, "R": 4, "A": 3, "Dc": 5, "Dr": 2}
    | {"G": 2, "Lb": 2, "Sb": 2, "W": 2, "U": 2, "Y": 32, "Z": 2, "X": 2, BATCH: 2}
)
BATCHES = (SIZES[BATCH],)

_DTYPES = MappingProxyType({"floating": "float64", "lse": "float64", "boolean": "bool", "integer": "int64"})


def fitting(operation: str, sizes: Mapping[str, int] = SIZES) -> dict[str, Any]:
    """Make a valid call with all arrays and all required arguments."""
    return dict(_fitting(operation, tuple(sizes.items())))


@lru_cache(maxsize=256)
def _fitting(operation: str, sizes: tuple[tuple[str, int], ...]) -> Mapping[str, Any]:
    """Make a valid call once: each fault of an operation is a change of it."""
    known = OPERATIONS[operation].arguments
    made = {name: value_for(operation, x, dict(sizes)) for name, x in known.items() if x.required}
    for value in made.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return made


def with_needs(operation: str, argument: Argument, sizes: Mapping[str, int] = SIZES) -> dict[str, Any]:
    """Return an argument, with the other arguments that it needs."""
    known = OPERATIONS[operation].arguments
    names = (*argument.needs, *argument.matters_with[:1], argument.name)
    return {name: value_for(operation, known[name], sizes) for name in names}


def value_for(
    operation: str, argument: Argument, sizes: Mapping[str, int] = SIZES, *, whole: bool = False
) -> Any:
    """Make a valid value for an argument. The numbers of an array are 1, or 0 if they are integers."""
    otherwise = OPERATIONS[operation].otherwise
    own = {letter: size for letter, size in sizes.items() if size != SIZES.get(letter)}
    letters = {**SIZES, **own}
    letters = {**letters, **{letter: letters[other] for letter, (_, other) in otherwise.items()}, **own}
    least = argument.bounds.least if argument.bounds else 0
    if argument.kind == "array":
        shape = shape_of(argument.shape, Sizes(letters, (letters[BATCH],)))
        part = shape[-2:] if argument.broadcasts and not whole else shape
        if argument.sums:  # all of them in the first entry
            return np.eye(1, *part, dtype=np.int64)[0] * (value_of(argument.sums, letters) or 0)
        number = 1 if argument.numbers != "integer" else min(_limits(argument, letters)[1], 0)
        codes = argument.numbers == "integer" and argument.name.endswith(CODES)
        made = np.full(part, number, "int8" if codes else _DTYPES[argument.numbers])
        if argument.name == "key_indices":  # no list holds a key twice (SPARSE-8)
            made[..., 1:] = least
        return _last(made, _limits(argument, letters)[1]) if argument.covers else made
    if argument.binds:
        return letters[argument.binds]
    by_kind = {"integers": least, "integer": least, "number": 0.5, "flag": True, "window": (1, 0)}
    return argument.words[0] if argument.kind == "word" else by_kind[argument.kind]


@dataclass(frozen=True)
class Fault:
    """A value that an argument must not have."""

    name: str  # what the argument is then: ``scale of NaN``
    key: str  # what is wrong, as in `Argument.refusals`
    value: Any
    own: bool = False  # no rule speaks of it, and only our own sources refuse it
    late: bool = False  # one call shows it


#: Numbers of another kind than an array has to have.
_WRONG_DTYPES: Mapping[str, Mapping[str, str]] = {
    "floating": {"integers": "int32", "booleans": "bool", "complex numbers": "complex64"},
    "lse": {"integers": "int32", "booleans": "bool", "half precision": "float16"},
    "boolean": {"integers": "int32", "bytes": "uint8", "real numbers": "float64"},
    "integer": {"real numbers": "float64", "booleans": "bool"},
}
#: Forms that are none: key, words, value, and whether only we refuse it.
_FORMS: Mapping[str, tuple[tuple[str, str, Any, bool], ...]] = {
    "number": (
        ("form", "of NaN", float("nan"), False),
        ("form", "of infinity", float("inf"), False),
        ("form", "of minus infinity", float("-inf"), False),
        ("form", "past the floats", 10**400, True),
        ("form", "of a complex number", 1j, True),
        ("form", "of a boolean", True, True),
        ("form", "of a word", "1", True),
        ("form", "of an array", np.ones(()), True),
    ),
    "integer": (("form", "of a fraction", 2.5, False), ("form", "of a boolean", True, True)),
    "integers": (
        ("form", "of a fraction", 1.5, False),
        ("form", "of a boolean", True, True),
        ("form", "of a word", "1", True),
    ),
    "flag": (
        ("form", "as an integer", 1, True),
        ("form", "as nothing", None, True),
        ("form", "as a word", "yes", True),
        ("form", "as an array", np.ones((), bool), True),
    ),
    "word": (("form", "that is unknown", "other", False), ("form", "of a boolean", True, True)),
    "window": (
        ("form", "of one bound", (1,), False),
        ("form", "of three bounds", (1, 1, 1), False),
        ("form", "as a number", 2, False),
        ("bounds", "below 0", (-1, 0), False),
        ("bounds", "below 0 on the right", (0, -1), False),
        ("form", "of fractions", (1.5, 0), False),
        ("form", "of whole fractions", (1.0, 0), True),
        ("form", "of booleans", (True, 0), True),
        ("form", "as a word", "12", True),
        ("form", "of words", ("1", "2"), True),
    ),
}


def faults(operation: str, argument: Argument, sizes: Mapping[str, int] = SIZES) -> Iterator[Fault]:
    """List the possible faults of an argument, in calls of some sizes."""
    forms = [
        Fault(f"{argument.noun} {words}", key, value, own)
        for key, words, value, own in _FORMS.get(argument.kind, ())
    ]
    last = argument.kind == "integer"  # of two calls that one rule rejects, the first is made
    yield from () if last else forms
    if argument.required and argument.kind != "array":
        yield Fault(f"{argument.noun} as nothing", "form", None, late=True)
    if argument.kind == "array":
        yield from _of_array(operation, argument, sizes)
    elif argument.kind == "integers":
        yield from _of_entries(argument, sizes)
    elif argument.bounds is not None and argument.kind != "window":
        yield from _of_number(argument, sizes)
    yield from forms if last else ()


def _of_array(operation: str, argument: Argument, sizes: Mapping[str, int]) -> Iterator[Fault]:
    good = value_for(operation, argument, sizes)
    for words, dtype in _WRONG_DTYPES[argument.numbers].items():
        yield Fault(f"{argument.noun} of {words}", "dtype", np.ones(good.shape, dtype))
    if argument.sums:
        more, less = good.copy(), good.copy()
        more[-1] += 1
        less[0], less[-1] = good[0] + 1, -1
        yield Fault(f"{argument.noun}s that have too many", "bounds", more)
        yield Fault(f"one {argument.noun} below 0", "bounds", less)
    if argument.bounds is not None:
        least, most = _limits(argument, sizes)
        yield Fault(f"{argument.noun} below {least}", "bounds", _last(good, least - 1))
        yield Fault(f"{argument.noun} past the last", "bounds", _last(good, most + 1))
        if argument.ascending:
            begun = np.full(good.shape, most)
            yield Fault(f"{argument.noun} that begin past {least}", "bounds", begun)
            rising = np.where(np.arange(good.size) % 2, most, least).reshape(good.shape)
            yield Fault(f"{argument.noun} that decrease", "bounds", rising)
        if argument.covers:
            yield Fault(f"{argument.noun} that end early", "bounds", _last(good, most - 1))
    if argument is OPERATIONS[operation].positional[0] and not argument.broadcasts:
        yield Fault(f"{argument.noun} of one axis", "axes", _like(good, good.shape[-1:]))
    elif argument.broadcasts:
        yield from _of_broadcast(operation, argument, sizes)
    else:
        yield from _of_shape(operation, argument, good)


def _of_broadcast(operation: str, argument: Argument, sizes: Mapping[str, int]) -> Iterator[Fault]:
    whole = value_for(operation, argument, sizes, whole=True)
    queries, keys = whole.shape[-2:]
    yield Fault(f"{argument.noun} of swapped axes", "shape", _like(whole, (keys, queries)))
    yield Fault(f"{argument.noun} of too many axes", "more", _like(whole, (1, *whole.shape)))
    for place, letter in enumerate(argument.shape[-3:]):
        if letter != BATCH:
            yield _longer(argument, _like(whole, whole.shape[-3:]), place, letter, 1)
    yield _longer(argument, whole, 0, BATCH, 1)


def _of_shape(operation: str, argument: Argument, good: Any) -> Iterator[Fault]:
    # A size that an argument is the first to determine is a fault of the others, not of itself.
    said = _said_first(operation, argument)
    if argument is not OPERATIONS[operation].in_order[0]:  # which says how many batch axes there are
        yield Fault(f"{argument.noun} with an axis more", "more", _like(good, (1, *good.shape)))
        yield Fault(f"{argument.noun} with an axis less", "shape", _like(good, good.shape[1:]))
    if good.ndim > 1 and not set(argument.shape[-2:]) <= said:
        shape = (*good.shape[:-2], good.shape[-1], good.shape[-2])
        yield Fault(f"{argument.noun} of swapped axes", "shape", _like(good, shape))
    last = argument.shape[-1]
    if good.ndim and last not in said and good.shape[-1] > 1:
        key, single = last if last in argument.refusals else "shape", (*good.shape[:-1], 1)
        yield Fault(f"{argument.noun} of one in its axis", key, _like(good, single), late=True)
    for place, letter in enumerate(argument.shape):
        if letter in said:
            continue
        yield _longer(argument, good, place, letter, 1)
        shared = letter in LETTERS and bool(LETTERS[letter].divides)
        if shared:
            yield _longer(argument, good, place, letter, good.shape[place])
        # Not down to one, because an axis of one might be repeated, and heads are repeated by a rule.
        if good.shape[place] > 2 or shared:
            yield _longer(argument, good, place, letter, -1)


def _said_first(operation: str, argument: Argument) -> set[str]:
    """Return the letters that an argument is the first to determine. A product determines at most one."""
    before: set[str] = set()
    for other in OPERATIONS[operation].in_order:
        if other is argument:
            break
        before |= set(other.shape)
    return {letter for letter in argument.shape if not set("*/") & set(letter[1:]) and letter not in before}


def _longer(argument: Argument, good: Any, place: int, letter: str, more: int) -> Fault:
    """Make one axis longer or shorter."""
    shape = list(good.shape)
    shape[place] += more
    counted = letter.removesuffix(ONE_MORE)
    whole, quotient, _ = counted.partition("/")
    blocks = LETTERS[whole].noun if whole in LETTERS else "places"
    columns = f"blocks of {blocks}" if quotient else f"columns ({letter})"
    noun = LETTERS[counted].noun if counted in LETTERS else columns
    words = "twice the" if more > 1 else "more" if more == 1 else "fewer"
    key = letter if letter in argument.refusals else "shape"
    return Fault(f"{argument.noun} of {words} {noun}", key, _like(good, tuple(shape)))


def _of_entries(argument: Argument, sizes: Mapping[str, int]) -> Iterator[Fault]:
    """List the possible faults of integers, one for each batch entry."""
    noun, several = argument.noun, f"{argument.noun}s"
    (entries,) = BATCHES
    yield Fault(f"{several} of real numbers", "dtype", np.ones(entries))
    yield Fault(f"{several} of booleans", "dtype", np.ones(entries, bool))
    for words, shape in (
        (f"{several} for too many entries", (entries + 1,)),
        (f"one {noun} in an axis", (1,)),
        (f"{several} for each query", (entries, sizes["L"])),
    ):
        yield Fault(words, "shape", np.ones(shape, np.int64))
    if argument.bounds is not None:
        least, most = _limits(argument, sizes)
        letter = LETTERS[str(argument.bounds.most).partition("-")[0].partition("*")[0]]
        full = np.full(entries, most)
        for words, wrong in ((f"below {least}", least - 1), (f"past the {letter.noun}", most + 1)):
            yield Fault(f"{noun} {words}", "bounds", wrong)
            entries_key = "entries" if "entries" in argument.refusals else "bounds"
            yield Fault(f"one {noun} {words}", entries_key, _last(full, wrong))


def _of_number(argument: Argument, sizes: Mapping[str, int]) -> Iterator[Fault]:
    """List the possible faults of a number with bounds."""
    bounds = argument.bounds
    if bounds is None:
        return
    if argument.kind == "number":
        if bounds.above:
            yield Fault(f"{argument.noun} of {bounds.least}", "bounds", float(bounds.least))
        yield Fault(f"{argument.noun} below {bounds.least}", "bounds", bounds.least - 0.5)
        if bounds.most != "":
            past, word = (0.0, "of") if bounds.below else (0.5, "above")
            yield Fault(f"{argument.noun} {word} {bounds.most}", "bounds", float(bounds.most) + past)
        return
    least, most = _limits(argument, sizes)
    yield Fault(f"{argument.noun} of {least - bounds.step}", "bounds", least - bounds.step)
    if argument.required and least > 0:
        yield Fault(f"{argument.noun} of -1", "bounds", -1, late=True)
    if bounds.step > 1:
        yield Fault(f"{argument.noun} that is odd", "bounds", least + 1)
    if bounds.most != "":
        yield Fault(f"{argument.noun} past the depth", "bounds", most + bounds.step)
    if argument.binds in HEADS:
        good = sizes[argument.binds]
        yield Fault(f"{argument.noun} that do not divide", "shape", good + 1)
        yield Fault(f"{argument.noun} of twice as many", "shape", 2 * good)


def _limits(argument: Argument, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the smallest and the largest valid integer."""
    bounds = argument.bounds
    if bounds is None or bounds.most == "":
        return (0 if bounds is None else bounds.least), 0
    most = bounds.most if isinstance(bounds.most, int) else value_of(bounds.most, sizes)
    return bounds.least, (most or 0) - bounds.below


def _like(array: Any, shape: tuple[int, ...]) -> Any:
    return np.full(shape, array.flat[0] if array.size else 1, array.dtype)


def _last(array: Any, number: int) -> Any:
    changed = array.copy()
    changed.flat[-1] = number
    return changed
