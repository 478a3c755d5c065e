"""Entries of the gallery: the step that each replaces, the rule that it breaks, and its name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import getdoc, signature
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnspec import find_rule
from attnspec.backends import DTYPES, Backend, load_library
from attnspec.reference import functions
from attnspec.reference.budget.budget import Accuracy
from attnspec.reference.call import STEPS, Call, Step, Steps
from attnspec.reference.notation import Attention

Array = NDArray[Any]
#: The module in the name of each backend of the gallery.
PLACE = "attnspec.conformance.gallery"

#: The steps of the reference, by name. Entries replace some of them.
base = SimpleNamespace(**STEPS)


@dataclass(frozen=True)
class Entry:
    """One implementation of the gallery."""

    name: str
    sentence: str
    steps: Mapping[str, Step]  # the replacements of steps of the reference
    rule: str = ""  # that it breaks; empty for a correct entry
    kind: str = ""  # the class of its bug, a letter of `KINDS`; empty for a correct entry
    seen: str = ""  # a public thread about such a bug, ``owner/repository#number``
    accuracy: Accuracy = "full"  # the class of budget that a correct entry meets in half precision
    lacks: tuple[str, ...] = ()  # arguments that it does not take, in any operation
    #: Rules that it claims. A wrong entry claims the rule that it breaks, if that can be claimed.
    claims: tuple[str, ...] = ()
    needs: str = ""  # a word of `NEEDS` if the ordinary run of the suite does not show the bug

    def backend(self) -> Backend:
        """Make a backend of the entry, with its own memory."""
        return self._backend(self.steps)

    def beside(self, others: Iterable["Entry"]) -> tuple[Backend, set[str]]:
        """Make a backend of the entry that also runs the steps of other entries and compares the results.

        An entry is noted if one of its steps returns other bits in some call. Each other entry has the same
        results as this one, and need not be run separately.

        Examples
        --------
        >>> import numpy as np
        >>> from attnspec.conformance.gallery import entry
        >>> others = [entry(name) for name in ("masks_counted", "everything_in_float64")]
        >>> backend, noted = entry("plain").beside(others)
        >>> one = np.ones((2, 2), np.float32)
        >>> backend.attention(one, one, one).shape, noted
        ((2, 2), {'everything_in_float64'})
        """
        noted: set[str] = set()
        steps: dict[str, list[Entry]] = {}
        for other in others:
            for name in other.steps:
                steps.setdefault(name, []).append(other)

        def note(name: str, call: Call, *rest: Any, **options: Any) -> Any:
            own = self.steps.get(name, getattr(base, name))
            result = _outcome(own, call, *rest, **options)
            for other in steps[name]:
                if other.name not in noted:
                    # As in the entry, all other steps are those of the reference.
                    its = _outcome(other.steps[name], call.but(steps=Steps()), *rest, **options)
                    if not _same_bits(result, its):
                        noted.add(other.name)
            if isinstance(result, Exception):
                raise result
            return result

        return self._backend({**self.steps, **{name: partial(note, name) for name in steps}}), noted

    def _backend(self, steps: Mapping[str, Step]) -> Backend:
        made = functions(steps)
        run, companions = made["attention"], made.companions()
        for function in (run, *companions.values()) if self.lacks else ():
            whole = signature(function)
            kept = [parameter for name, parameter in whole.parameters.items() if name not in self.lacks]
            function.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined] # read by inspect
        library = load_library("numpy")
        return Backend(f"{PLACE}:{self.name}", library, run, DTYPES, companions, claims=self.claims)


@dataclass(frozen=True)
class After:
    """A change of the result of a step. It takes the result, or each part of a tuple, then the arguments."""

    change: Step

    def of(self, step: Step) -> Step:
        """Make the step that changes the result of another."""

        def changed(*arguments: Any, **options: Any) -> Any:
            result = step(*arguments, **options)
            parts = result if isinstance(result, tuple) else (result,)
            return self.change(*parts, *arguments, **options)

        return changed


Row = tuple[str, str, str, str, Step | After, str] | tuple[str, str, str, str, Step | After, str, str]
A = TypeVar("A", bound=Attention)

#: The classes of bugs, by letter.
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "A": "causal alignment, offsets",
        "B": "rows with nothing to attend to",
        "C": "sentinels, overflow, low precision",
        "D": "shared key heads",
        "E": "windows",
        "F": "softcap",
        "G": "tiles, remainders, poisoned padding",
        "H": "strides, broadcasting, layout",
        "I": "lse, merging",
        "J": "dropout",
        "K": "scale",
        "L": "dtype of bias and mask",
        "M": "sinks",
        "N": "integer overflow",
        "O": "empty axes",
        "P": "depth of the values",
        "Q": "position encodings",
        "R": "polarity and value of masks",
        "S": "dtype of results",
        "T": "determinism, memory of earlier calls",
        "U": "arguments that should be refused",
        "V": "projections, caches, pages, packed sequences",
        "W": "backward passes",
        "Y": "selection of keys",
        "Z": "codes, scales, short formats",
        "X": "bits that depend on batch, padding, chunks, layout or other calls",
    }
)


#: What an entry may need in addition to the ordinary run of the suite.
NEEDS: Mapping[str, str] = MappingProxyType(
    {
        "sizes": "more queries, keys, heads, batch entries or features",
    }
)


def wrong(step: str, rule: str, kind: str, seen: str = "") -> Callable[[Step], Entry]:
    """Make an entry from a function that replaces a step. Its docstring says what it does wrong."""
    return lambda function: _wrong(function.__name__, step, rule, kind, function, sentence_of(function), seen)


def rows(*table: Row) -> tuple[Entry, ...]:
    """Make an entry from each row of a table.

    A row has the name, the step, the rule, the kind, the function that replaces the step or the change of its
    result, the sentence that says what it does wrong, and the public thread if there is one.
    """
    return tuple(_wrong(*row) for row in table)


def _wrong(
    name: str, step: str, rule: str, kind: str, function: Step | After, sentence: str, seen: str = ""
) -> Entry:
    claims = (rule,) if find_rule(rule).level == "MAY" else ()
    if isinstance(function, After):
        function = function.of(getattr(base, step))
    return Entry(name, sentence, {known_step(step): function}, rule, kind, seen, claims=claims)


def family(
    make: Callable[..., tuple[str, str, Step]], step: str, rule: str, kind: str, *members: Any
) -> tuple[Entry, ...]:
    """Make an entry for each member of a family of bugs that differ only in a size or an option."""
    made = [make(member) for member in members]
    return tuple(Entry(name, text, {known_step(step): replaced}, rule, kind) for name, text, replaced in made)


def correct(
    step: str, accuracy: Accuracy = "full", *, lacks: tuple[str, ...] = (), claims: tuple[str, ...] = ()
) -> Callable[[Step], Entry]:
    """Make an entry from a function that replaces a step and still conforms to the standard."""

    def entered(function: Step) -> Entry:
        steps = {known_step(step): function}
        options: Any = {"accuracy": accuracy, "lacks": lacks, "claims": claims}
        return Entry(function.__name__, sentence_of(function), steps, **options)

    return entered


def alter(call: A, **changes: Step) -> A:
    """Replace the given options by the results of functions."""
    given = {name: getattr(call, name) for name in changes}
    return call.but(**{name: changes[name](it) for name, it in given.items() if it is not None})


def first(array: Array, axis: int) -> Array:
    """Slice the first entry of an axis, counted from the end, if there is such an axis."""
    index: tuple[Any, ...] = (..., slice(0, 1), *(slice(None),) * (-1 - axis))
    return array if array.ndim < -axis else array[index]


def entries_of(*modules: ModuleType) -> tuple[Entry, ...]:
    """List the entries of some modules, in the order of their definition. Tuples hold families."""
    return tuple(
        entry for module in modules for thing in vars(module).values() for entry in _entries_in(thing)
    )


def _entries_in(thing: Any) -> tuple[Entry, ...]:
    things = thing if isinstance(thing, tuple) else (thing,)
    return tuple(entry for entry in things if isinstance(entry, Entry))


def _outcome(step: Step, *arguments: Any, **options: Any) -> Any:
    """Return the result of a step, or the exception that it raises."""
    try:
        return step(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - it is compared with that of another step
        return error


def _same_bits(result: Any, other: Any) -> bool:
    if isinstance(result, Exception) and isinstance(other, Exception):
        return type(result) is type(other) and result.args == other.args
    if isinstance(result, tuple) and isinstance(other, tuple):
        return len(result) == len(other) and all(map(_same_bits, result, other))
    if isinstance(result, np.ndarray | np.generic) and isinstance(other, np.ndarray | np.generic):
        return (
            result.shape == other.shape
            and result.dtype == other.dtype
            and result.tobytes() == other.tobytes()
        )
    return result is other


def sentence_of(function: Callable[..., Any]) -> str:
    """Return the docstring of a function on one line."""
    return " ".join((getdoc(function) or "").split())


def known_step(step: str) -> str:
    """Return the name of a step of the reference, and refuse other names."""
    if step not in STEPS:
        raise ValueError(f"step: expected one of {', '.join(STEPS)}, got {step!r}")
    return step
