"""Records the calls that a model makes of its attention, and judges them later with the same numbers.

A call of any size is judged in some of its rows, whose exact values the second oracle computes. A failing
call is reduced to its smallest part that still fails.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from attnspec import OPERATIONS, Case, SpecError
from attnspec.backends import Backend, load_library
from attnspec.backends.library import LIBRARIES
from attnspec.backends.program.protocol import read_call, write_call
from attnspec.case import Provenance
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.cause import SHAPE_RULES
from attnspec.conformance.judge.dtypes import Outputs
from attnspec.conformance.judge.failure import Missing, Raised
from attnspec.conformance.judge.judge import judge, require_calls
from attnspec.conformance.judge.traits import traits
from attnspec.conformance.sizes.chosen import chosen_rows, compare_rows, row_of
from attnspec.conformance.sizes.dialect import precisions
from attnspec.conformance.verdict import Difference, Verdict
from attnspec.dialect import in_dtype
from attnspec.dtypes import name_of
from attnspec.reading import read_text
from attnspec.reference import ArgumentError, allowed_keys, functions
from attnspec.reference.budget.attention import MASKING

_FORM = OPERATIONS["attention"]
#: The file of a folder of recorded calls.
CALLS = "calls.jsonl"
#: The axes along which a failing call is reduced, and the least size.
_AXES = (("*B",), ("Hq", "Hkv"), ("L",), ("S",))


def record(
    function: Callable[..., Any],
    folder: str | Path,
    *,
    names: Mapping[str, str] | None = None,
    layout: Literal["BHSD", "BSHD"] = "BHSD",
    most: int = 20,
) -> Callable[..., Any]:
    """Make a function that stores its calls in a folder, one of each kind, and then makes them.

    Two calls are of one kind if their shapes, dtypes and options are the same. ``attnspec recorded`` judges
    what is stored.

    Parameters
    ----------
    function : callable
        What a model calls as its attention.
    folder : str or path
        A folder without recorded calls; it is made.
    names : mapping of str to str, optional
        The parameters of the function by the names of arguments of `attention`, where they differ.
    layout : {"BHSD", "BSHD"}
        Whether heads come before or after positions.
    most : int
        The largest number of calls that are stored.

    Raises
    ------
    SpecError
        If the folder has recorded calls, or a call has an argument that `attention` does not have.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from attnspec.backends import describe
    >>> from attnspec.conformance.recorded import judge_recorded, record
    >>> from attnspec.reference import attention
    >>> folder = tempfile.mkdtemp()
    >>> mine = record(attention, folder)
    >>> mine(np.ones((1, 2, 4)), np.ones((1, 3, 4)), np.ones((1, 3, 4)), is_causal=True).shape
    (1, 2, 4)
    >>> [verdict.status for verdict in judge_recorded(describe(attention), folder)]
    ['pass']
    """
    path = Path(folder)
    if (path / CALLS).exists():
        raise SpecError(f"folder: expected one without {CALLS}, got {path}")
    ours = {own: name for name, own in (names or {}).items()}
    signature, kinds = inspect.signature(function), set[str]()

    @wraps(function)
    def recording(*arrays: Any, **options: Any) -> Any:
        given = signature.bind(*arrays, **options).arguments
        arguments = {ours.get(own, own): _plain(thing) for own, thing in given.items() if thing is not None}
        _store({name: _with_heads_first(name, x, layout) for name, x in arguments.items()})
        return function(*arrays, **options)

    def _store(arguments: dict[str, Any]) -> None:
        if unknown := arguments.keys() - _FORM.arguments.keys():
            raise SpecError(
                f"names: expected an argument of attention for each parameter of a recorded call, "
                f"got none for {', '.join(sorted(unknown))}"
            )
        arguments = {name: x for name, x in arguments.items() if not name.startswith("return_")}
        kind = repr([(name, _kind(arguments[name])) for name in sorted(arguments)])
        if kind in kinds or len(kinds) >= most:
            return
        kinds.add(kind)
        place = path / f"{len(kinds):04}"
        place.mkdir(parents=True)
        line = write_call(len(kinds), "attention", arguments, place, place.name)
        with (path / CALLS).open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    return recording


def _plain(thing: Any) -> Any:
    """Return an array of any library as one of NumPy, and anything else as it is."""
    if not is_array_api_obj(thing):
        return tuple(thing) if isinstance(thing, list) else thing
    parts = array_namespace(thing).__name__.split(".")
    name = next((name for name, package in LIBRARIES.items() if package in parts), parts[0])
    thing = thing.detach() if hasattr(thing, "detach") else thing
    return load_library(name).to_numpy(thing, "")


def _with_heads_first(name: str, thing: Any, layout: str) -> Any:
    """Put the heads of queries, keys and values before their positions."""
    turned = layout == "BSHD" and name in _FORM.arrays
    return np.ascontiguousarray(np.swapaxes(thing, -2, -3)) if turned else thing


def _kind(thing: Any) -> str:
    return f"{thing.dtype} {thing.shape}" if isinstance(thing, np.ndarray) else repr(thing)


@dataclass(frozen=True)
class RecordedCall:
    """A recorded call, which is judged in some of its rows. The fields are those of a case."""

    case: Case
    group: str = "recorded calls"
    seed: int = 0

    @property
    def id(self) -> str:
        """Its number in the folder."""
        return self.case.id

    @property
    def name(self) -> str:
        """Its number and its dtype."""
        return self.case.name

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of its options, that of the output first."""
        return self.case.rules

    @property
    def dtype(self) -> str:
        """The dtype of its queries."""
        return self.case.dtype

    @property
    def operation(self) -> str:
        """It is a call of attention."""
        return self.case.operation

    @property
    def calls(self) -> tuple[Case, ...]:
        """Its one call."""
        return (self.case,)

    @property
    def traits(self) -> tuple[str, ...]:
        """The traits of its call."""
        return traits(self.case)

    @property
    def numbers(self) -> int:
        """The number of numbers in its arrays."""
        return sum(x.size for x in self.case.arguments.values() if isinstance(x, np.ndarray))

    def require(self, backend: Backend) -> None:
        """Raise `Missing` if the backend does not offer the call."""
        require_calls(backend, self)

    def applicable_rules(self, backend: Backend) -> tuple[str, ...]:  # noqa: ARG002 - as in a relation
        """Return its rules."""
        return self.rules

    def judge(self, backend: Backend, verdict: Verdict) -> Verdict:
        """Make the call, and compare its last row and some others with their exact values."""
        asked = [
            name for name in ("output", "lse") if name == "output" or backend.has("attention", "return_lse")
        ]
        try:
            outputs = call(backend, "attention", self.case.arguments, outputs=asked)
        except Raised:
            try:
                functions()["attention"](**self.case.arguments)
            except ArgumentError as error:
                raise Missing(f"the call is rejected, as it must or may be: {error}") from None
            raise
        arguments = with_heads(self.case.arguments)
        rows = arguments["query"].shape[:-1]
        shapes = {"output": (*rows, arguments["value"].shape[-1]), "lse": rows}
        flat = arguments["query"] is not self.case.arguments["query"]
        for name, array in outputs.items():
            got = (1, *array.shape) if flat else array.shape
            if got != shapes[name]:
                wrong = Difference("shape", name, (), str(got), str(shapes[name]))
                return replace(
                    verdict, status="fail", rule=SHAPE_RULES[name], difference=wrong, code="differs"
                )
        outputs = {name: array[None] if flat else array for name, array in outputs.items()}
        places = chosen_rows(rows, self.seed) if np.prod(rows) else []
        result, accuracy = compare_with_exact(backend, arguments, outputs, self.dtype, places)
        if not isinstance(result, Difference):
            return replace(verdict, share=result, accuracy=accuracy)
        rule = {"dtype": "NUM-7" if result.output == "lse" else "NUM-1"}.get(result.kind, self.rules[0])
        failed = replace(verdict, status="fail", rule=rule, difference=result, code="differs")
        if result.kind == "pattern" and _has_hidden_numbers(row_of(arguments, result.element[: len(rows)])):
            return replace(failed, status="should not met", rule="MASK-13")
        return failed


def compare_with_exact(
    backend: Backend,
    arguments: Mapping[str, Any],
    outputs: Outputs,
    dtype: str,
    places: Sequence[tuple[int, ...]],
) -> tuple[Difference | float, str]:
    """Compare rows of outputs with their exact values, in each precision that may be used, and name it."""
    dialect = in_dtype(backend.dialect, dtype)
    queries, keys = arguments["query"].shape[-2], arguments["key"].shape[-2]
    if dialect.get("MASK-3") == "bottom-right" and {"query_offset", "query_positions"}.isdisjoint(arguments):
        arguments = {**arguments, "query_offset": keys - queries}  # a row alone is not at the end
    result: Difference | float = 0.0
    accuracy = ""
    for precision in precisions(backend, dtype):
        accuracy = precision.accuracy
        result = compare_rows(arguments, outputs, dtype, places, dialect=dialect, **precision.options)
        if not isinstance(result, Difference):
            break
    return result, accuracy


def _has_hidden_numbers(row: Mapping[str, Any]) -> bool:
    """Whether NaN or infinity stands where a row of one head attends to nothing."""
    masks = {name: row[name] for name in MASKING if name in row}
    hidden = ~allowed_keys((1, len(row["key"])), **masks)[0]
    arrays = [row["key"], row["value"]]
    arrays += [row["bias"].T] if "bias" in row else []
    return any(not np.isfinite(np.where(x == -np.inf, 0, x)[hidden].astype(np.float64)).all() for x in arrays)


def with_heads(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give arrays of two axes one head (SHAPE-2)."""
    if arguments["query"].ndim > 2:
        return arguments
    return {name: x[None] if name in _FORM.arrays else x for name, x in arguments.items()}


def read_recorded(folder: str | Path) -> Iterator[RecordedCall]:
    """Yield the calls that are recorded in a folder."""
    path = Path(folder)
    for line in read_text(path / CALLS).splitlines():
        number, _, arguments, _ = read_call(line, path)
        yield call_of(f"softmax-recorded-{number}", arguments)


def call_of(name: str, arguments: Mapping[str, Any]) -> RecordedCall:
    """Make a recorded call of arguments."""
    rules = dict.fromkeys(
        ("SOFT-3", *(_FORM.arguments[own].rule for own in arguments if own in _FORM.options))
    )
    shape = " x ".join(map(str, arguments["query"].shape))
    source = Provenance(source="recorded", inputs="those of a call that was recorded")
    title = f"a call with queries of {shape} {name_of(arguments['query'].dtype)} numbers"
    return RecordedCall(
        Case(name, title, "softmax", "attention", tuple(rules), arguments, source, group="recorded calls")
    )


def judge_recorded(backend: Backend, folder: str | Path) -> Iterator[Verdict]:
    """Yield the verdicts on the calls that are recorded in a folder."""
    for item in read_recorded(folder):
        yield judge(backend, item)


def shrink(backend: Backend, item: RecordedCall) -> RecordedCall:
    """Reduce a failing call: take half of the batch entries, heads, queries or keys as long as it fails."""
    reduced = True
    while reduced:
        reduced = False
        for letters in _AXES:
            for last in (False, True):
                arguments = _half(item.case.arguments, letters, last=last)
                if arguments is not None:
                    smaller = call_of(item.id, arguments)
                    if judge(backend, smaller).bad:
                        item, reduced = smaller, True
                        break
    return item


def _half(arguments: Mapping[str, Any], letters: tuple[str, ...], *, last: bool) -> dict[str, Any] | None:
    """Keep one half of some axes of all arguments. Return None if an axis has no half."""
    halves: dict[str, Any] = {}
    changed = False
    for name, thing in arguments.items():
        halves[name] = thing
        axes = axes_of(name, thing, letters)
        for axis in axes:
            size = thing.shape[axis]
            if size == 1 and name not in _FORM.arrays:
                continue  # it is broadcast
            if size < 2 or (size % 2 and "Hq" in letters):
                return None
            part = slice(size // 2, None) if last else slice(0, size // 2)
            halves[name] = np.ascontiguousarray(halves[name][(slice(None),) * axis + (part,)])
            changed = True
    if (
        last
        and {"L", "S"} & {*letters}
        and {"is_causal", "window", "query_lengths", "key_lengths"} & {*arguments}
    ):
        return None  # positions would change
    return halves if changed else None


def axes_of(name: str, thing: Any, letters: tuple[str, ...]) -> list[int]:
    """Return the axes of an argument that have one of some letters; of the batch, the first."""
    if not isinstance(thing, np.ndarray):
        return []
    shape = _FORM.arguments[name].shape
    if letters == ("*B",):
        own = len([axis for axis in shape if axis != "*B"])
        return [0] if shape[:1] == ("*B",) and thing.ndim > own else []
    return [
        thing.ndim - place
        for place, axis in enumerate(reversed(shape), start=1)
        if axis in letters and place <= thing.ndim
    ]
