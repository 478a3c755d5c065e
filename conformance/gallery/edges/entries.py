"""Makes entries from bases, and holds the calls that show those that the ordinary run does not kill."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from attnspec.conformance.gallery.bases.online import Online
from attnspec.conformance.gallery.bases.splitting import Splits
from attnspec.conformance.gallery.entry import After, Entry, known_step, sentence_of
from attnspec.conformance.suite.edges import AT_EDGES
from attnspec.conformance.suite.options import Options
from attnspec.conformance.suite.problem import Shape, problem_of
from attnspec.reference.call import Step
from attnspec.reference.notation import Attention

FILE = Path(__file__).with_name("needs.json")
_READ: dict[str, list[Any]] = json.loads(FILE.read_text(encoding="utf-8"))
Base = Online | Splits


@dataclass(frozen=True)
class Sized:
    """A call: its sizes, and its options by a name in `AT_EDGES`."""

    shape: Shape
    options: str = "plain"

    @property
    def arguments(self) -> Options:
        """The arguments in float64, with all outputs requested."""
        problem = problem_of(self.shape, "float64", 1)
        # The options may change queries and keys too.
        arguments = problem.arguments | AT_EDGES[self.options](problem)
        return arguments | {"return_lse": True, "return_weights": True}


def _sized(outer: list[int], *sizes: int, options: str) -> Sized:
    return Sized(Shape(tuple(outer), *sizes), options)


#: Calls, and the names of the entries that have a wrong result for each.
CALLS: Mapping[Sized, tuple[str, ...]] = {
    _sized(*call["shape"], options=call["options"]): tuple(call["shows"]) for call in _READ["sizes"]
}

#: The call for each of these entries.
SHOWN: Mapping[str, Sized] = {name: call for call, names in CALLS.items() for name in names}

#: The rule of each option, and the class of a bug that forgets it.
OPTION_BUGS: Mapping[str, tuple[str, str]] = {
    "scale": ("SCORE-3", "K"),
    "softcap": ("SCORE-5", "F"),
    "bias": ("SCORE-4", "L"),
    "mask": ("MASK-1", "R"),
    "is_causal": ("MASK-3", "A"),
    "query_offset": ("MASK-7", "A"),
    "window": ("MASK-8", "E"),
    "query_lengths": ("MASK-10", "G"),
    "key_lengths": ("MASK-9", "G"),
    "segments": ("MASK-11", "R"),
    "positions": ("MASK-14", "A"),
    "sinks": ("SOFT-5", "M"),
    "dropout_mask": ("DROP-1", "J"),
    "dropout_rate": ("DROP-2", "J"),
}


def without(call: Attention, option: str) -> Attention:
    """Set an option of `OPTION_BUGS` to its default."""
    pairs = {
        "segments": ("query_segment_ids", "key_segment_ids"),
        "positions": ("query_positions", "key_positions"),
    }
    names = pairs.get(option, (option,))
    defaults: dict[str, Any] = {"is_causal": False, "query_offset": 0, "dropout_rate": 0.0}
    return call.but(**{name: defaults.get(name) for name in names})


def for_options(make: Callable[[str, str, str], tuple[Entry, ...]], *options: str) -> tuple[Entry, ...]:
    """Make the entries of some options from a function that takes an option, its rule and its class."""
    return tuple(entry for option in options for entry in make(option, *OPTION_BUGS[option]))


#: By the names of entries: a word of `NEEDS` of `gallery.entry`.
NEEDED: Mapping[str, str] = dict.fromkeys(SHOWN, "sizes")


#: Tiles or splits, without the last of several.
WITHOUT_LAST_OF_ODD = After(lambda parts, *_: parts[:-1] if len(parts) > 1 and len(parts) % 2 else parts)
WITHOUT_LAST_ALONE = After(
    lambda parts, *_: parts[:-1] if len(parts) > 1 and parts[-1].stop - parts[-1].start == 1 else parts
)


def on(step: str, rule: str, kind: str, *bases: Base) -> Callable[[Callable[..., Any]], tuple[Entry, ...]]:
    """Make an entry for each base from a function that replaces a step of it."""
    return lambda function: on_rows(
        (function.__name__, step, rule, kind, bases, function, sentence_of(function))
    )


def on_rows(
    *table: tuple[str, str, str, str, tuple[Base, ...], Callable[..., Any] | After, str],
) -> tuple[Entry, ...]:
    """Make the entries of a table, whose rows are those of `rows` with the bases after the class."""
    made = []
    for name, step, rule, kind, bases, function, sentence in table:
        for each in bases:
            own = function.of(getattr(each, step)) if isinstance(function, After) else function
            steps = {"attend": each.with_step(step, own).attend}
            full, words = f"{name}_{each.name}", f"{sentence[:-1]}, {each.words}."
            made.append(Entry(full, words, steps, rule, kind, needs=NEEDED.get(full, "")))
    return tuple(made)


def around(rule: str, kind: str, *bases: Base) -> Callable[[Callable[..., Any]], tuple[Entry, ...]]:
    """Make an entry for each base from a function that takes the `attend` of the base and a call."""

    def entered(function: Callable[..., Any]) -> tuple[Entry, ...]:
        made = []
        for each in bases:

            def attend(call: Any, attend: Step = each.attend) -> Any:
                return function(attend, call)

            name = f"{function.__name__}_{each.name}"
            sentence = f"{sentence_of(function)[:-1]}, {each.words}."
            made.append(Entry(name, sentence, {"attend": attend}, rule, kind, needs=NEEDED.get(name, "")))
        return tuple(made)

    return entered


def at(step: str, rule: str, kind: str, *sizes: Any) -> Callable[[Callable[..., Any]], tuple[Entry, ...]]:
    """Make an entry for each size from a function that takes a size and replaces a step of the reference.

    The size replaces ``some`` in its name and ``{}`` in its docstring.
    """
    return lambda function: at_rows(
        (function.__name__, step, rule, kind, sizes, function, sentence_of(function))
    )


def at_rows(
    *table: tuple[str, str, str, str, tuple[Any, ...], Callable[..., Any], str],
) -> tuple[Entry, ...]:
    """Make the entries of a table, whose rows are those of `rows` with the sizes after the class."""
    made = []
    for name, step, rule, kind, sizes, function, sentence in table:
        for size in sizes:
            own, words = name.replace("_some", f"_{size}"), sentence.replace("{}", str(size))
            steps = {known_step(step): partial(function, size)}
            made.append(Entry(own, words, steps, rule, kind, needs=NEEDED.get(own, "")))
    return tuple(made)
