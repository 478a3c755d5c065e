"""Cases with all that a judge needs: the arguments, the exact values, and the allowed errors."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case
from attnspec.backends import DTYPES, Backend
from attnspec.backends.library.library import array_api_library
from attnspec.backends.program.protocol import as_function
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.dtypes import (
    LSES,
    accepted_dtypes,
    arguments_of,
    dtypes_of,
    is_real,
    lse_dtype,
    own_dtypes,
)
from attnspec.conformance.judge.expected import expected, forward_results
from attnspec.conformance.judge.layout import LAYOUTS, SHARED, SURROUNDED
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite.group import Item
from attnspec.dtypes import FORMATS, SHORT, name_of
from attnspec.operations.operation import Output as Result
from attnspec.reference.budget.budget import Accuracy, Budget
from attnspec.reference.numpy_namespace import xp

#: Whether a call may or must be rejected.
Rejection = Literal["never", "may", "must"]
#: The dtypes, from the fewest significand bits to the most.
BY_DIGITS = tuple(sorted(DTYPES, key=lambda name: FORMATS[name].digits))
#: An allowed error has at most this number of significand bits, as a number in bfloat16 has.
ALLOWED_DIGITS = 8
#: Weights with more elements than this are left out.
MOST_WEIGHTS = 2**12


@dataclass(frozen=True)
class Output:
    """An output of a call, with what is allowed.

    `allowed` has the largest error of each element, by the dtype of the call and the class of budget, rounded
    up to 8 significand bits. An error that is plus infinity also allows NaN, where plus infinity is expected.
    An error of NaN allows anything: the standard does not define the element.
    """

    name: str
    #: ``number``, the dtype of the call; ``lse``, that of an lse; ``wider``, the dtype of the call or a wider
    #: one; ``counts``, a list of places, of which it is compared how often each is there (SELECT-8); or the
    #: name of a dtype.
    kind: str
    option: str  # the flag that asks for it; empty if every call returns it
    expected: NDArray[np.float64]
    allowed: Mapping[tuple[str, Accuracy], NDArray[np.float64]]


@dataclass(frozen=True)
class ExportedCall:
    """A call that can be judged by comparing arrays, in each of some dtypes.

    The calls of a relation have the name of the relation and a suffix after a plus sign. `outputs` is empty
    if the call must be rejected; then the error has to name one of the arguments `at_fault` (ERR-12). The
    arguments have the results of the forward pass too.
    """

    name: str  # of the first case of the suite that makes the call
    title: str
    operation: str
    dtypes: tuple[str, ...]  # the dtypes in which the call can be made
    rules: tuple[str, ...]
    arguments: Mapping[str, Any]
    #: How each array among the arguments gets its dtype: ``number``, from the dtype of the call; ``lse``, as
    #: an lse does; ``own``, it has the dtype that it is stored in.
    kinds: Mapping[str, str]
    results: tuple[str, ...]  # what the call returns, in this order; outputs that a flag asks for follow
    outputs: tuple[Output, ...]
    rejection: Rejection = "never"
    at_fault: tuple[str, ...] = ()
    chapter: str = ""
    #: How some arrays lie in memory, in elements: the size of the memory, the place of the first element, and
    #: the stride of each axis.
    layout: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def arrays(self, dtype: str | None = None) -> dict[str, NDArray[Any]]:
        """Return the arguments that are arrays, in a dtype of the call if one is given."""
        found = {name: x for name, x in self.arguments.items() if isinstance(x, np.ndarray)}
        if dtype is None:
            return found
        cast = {"number": dtype, "lse": lse_dtype(dtype) if dtype in DTYPES else dtype}
        with np.errstate(over="ignore"):  # a result of the forward pass
            return {
                name: x if self.kinds[name] == "own" else x.astype(cast[self.kinds[name]])
                for name, x in found.items()
            }


def exported_calls(
    found: Iterable[Item],
    dtypes: Collection[str] = DTYPES,
    *,
    weights: int = MOST_WEIGHTS,
    of_weights: Collection[str] = (),
) -> Iterator[ExportedCall | Item]:
    """Yield each call once, with its expected values and allowed errors in each dtype that holds its numbers.

    `weights` is the most elements of weights that are returned, but of the calls `of_weights`. An item that
    no comparison of arrays can judge is yielded as it is: one about repeated calls, about bits, or about what
    lies around an array.
    """
    seen: set[tuple[Any, ...]] = set()
    for item in found:
        cases = _cases(item)
        if not cases:
            yield item
        for name, case in cases:
            own = _dtypes(case)
            asked = case.outputs, case.misuse is not None, *sorted(case.layout.items())
            key = (case.fingerprint, own if len(own) == 1 else (), *asked)
            chosen = tuple(dtype for dtype in own if dtype in dtypes or dtype not in DTYPES)
            if key in seen or not chosen:
                continue
            seen.add(key)
            try:
                most = MOST_WEIGHTS if name in of_weights else weights
                call = _call(case, name, chosen, weights=most)
            except ValueError:  # the standard defines no values for some calls of relations
                call = None
            if call is None:
                yield item
                break
            yield call


def _cases(item: Item) -> list[tuple[str, Case]]:
    """List the calls of an item that a comparison of arrays can judge, with their names."""
    if isinstance(item, Relation):
        if item.live or item.bits:
            return []
        return [
            (f"{item.name}+call-{number}", replace(case, rules=item.rules))
            for number, case in enumerate(item.calls, 1)
        ]
    apart = any(kind in SURROUNDED or kind.startswith(SHARED) for kind in item.layout.values())
    return [] if apart else [(item.name, item)]


def _dtypes(case: Case) -> tuple[str, ...]:
    """List the dtypes in which a call can be made, the one with the fewest digits first."""
    mixed = any(
        name_of(x.dtype) != (lse_dtype(case.dtype) if name in LSES else case.dtype)
        for name, x in case.arguments.items()
        if is_real(x)
    )
    if case.dtype not in DTYPES or mixed:
        return (case.dtype,)
    held = dtypes_of(case)
    return tuple(dtype for dtype in BY_DIGITS if dtype in held) or (case.dtype,)


def _call(case: Case, name: str, dtypes: tuple[str, ...], *, weights: int) -> ExportedCall | None:
    one_dtype = len(_dtypes(case)) == 1
    wide = dict(case.arguments) if one_dtype else arguments_of(case, "float64")
    wide |= forward_results(_everything(), case.operation, wide)
    kinds = {
        name: "own" if one_dtype or not is_real(x) else "lse" if name in {*LSES, "lse"} else "number"
        for name, x in wide.items()
        if isinstance(x, np.ndarray)
    }
    form = OPERATIONS[case.operation]
    if case.misuse is None:  # the outputs name the flags
        wide = {name: x for name, x in wide.items() if name not in {result.option for result in form.results}}
    results = tuple(
        result.name for result in form.results if not result.option and result.name in form.wanted(wide)
    )
    call = ExportedCall(
        name,
        case.title,
        case.operation,
        dtypes,
        case.rules,
        wide,
        kinds,
        results,
        (),
        chapter=case.chapter,
        layout={name: _strides(kind, wide[name]) for name, kind in case.layout.items()},
    )
    if case.misuse is not None:
        rejection: Rejection = "may" if case.misuse.allowed else "must"
        call = replace(call, rejection=rejection, at_fault=(case.misuse.argument, *case.misuse.named))
        if rejection == "must":
            return call
    with np.errstate(over="ignore"):  # disallowed scores may overflow
        values = expected(case)
        kinds_of = {x.name: _kind(case, x, one_dtype=one_dtype) for x in form.results}
        held = _holds(case.dtype, {name: x for name, x in values.items() if kinds_of.get(name) == "number"})
        # Numbers past the largest of the dtype of the case have their values in this dtype alone.
        dtypes = tuple(x for x in dtypes if x == case.dtype or (held and _holds(x, values)))
        call = replace(call, dtypes=dtypes)
        budgets = {
            (dtype, accuracy): budgets_of(
                _everything(),
                case if one_dtype else replace(case, arguments=arguments_of(case, dtype)),
                accuracy,
            )
            for dtype in dtypes
            for accuracy in _classes(dtype)
        }
    outputs = []
    for result in form.results:
        if result.name not in form.judged(case.arguments, case.outputs):
            continue
        array = np.asarray(values[result.name], dtype=np.float64)
        if result.option == "return_weights" and array.size > weights:
            continue
        allowed = {
            key: round_up(_with_open(result.name, values, budget[result.name]))
            for key, budget in budgets.items()
        }
        if not held:
            beyond = np.isfinite(array) & (np.abs(array) > FORMATS[case.dtype].largest)
            if any(budget[beyond].any() for budget in allowed.values()):
                return None  # the largest number or infinity, which no file expresses
            array = np.where(beyond, np.copysign(np.inf, array), array)
        outputs.append(Output(result.name, kinds_of[result.name], result.option or "", array, allowed))
    return replace(call, outputs=tuple(outputs)) if outputs and dtypes else None


def _holds(dtype: str, values: Mapping[str, Any]) -> bool:
    """Whether no finite expected value is larger than the numbers of a dtype."""
    arrays = [np.asarray(x, dtype=np.float64) for x in values.values()]
    return all((np.abs(x[np.isfinite(x)]) <= FORMATS[dtype].largest).all() for x in arrays)


def _strides(kind: str, array: NDArray[Any]) -> tuple[int, ...]:
    """Return how an array lies in memory: the size of the memory, the place of its start, its strides."""
    view = LAYOUTS[kind](np, array)
    memory = view
    while memory.base is not None:
        memory = memory.base
    start = view.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    return (memory.size, start // view.itemsize, *(stride // view.itemsize for stride in view.strides))


def _classes(dtype: str) -> tuple[Accuracy, ...]:
    return ("cast", "full") if dtype in SHORT else ("full",)


def _kind(case: Case, result: Result, *, one_dtype: bool) -> str:
    if result.lists:
        return "counts"
    own = own_dtypes(case).get(result.name, case.dtype)
    if one_dtype and own != case.dtype:
        return own
    if result.numbers == "lse":
        return "lse"
    accepted = accepted_dtypes(result.name, own)
    return "wider" if len(accepted) > 1 else "number"


def _with_open(name: str, values: Mapping[str, NDArray[np.float64]], allowed: Budget) -> NDArray[np.float64]:
    """Write what the judge accepts beside the exact values as allowed errors (NUM-11, CACHE-9)."""
    wide = np.broadcast_to(np.asarray(allowed, dtype=np.float64), values[name].shape).copy()
    if name in ("lse", "weights") and "lse" in values:
        infinite = values["lse"] == np.inf
        undefined = np.isnan(values["lse"]) | infinite
        if "weights" in values:
            undefined &= np.isnan(values["lse"]) | np.isnan(values["weights"]).all(axis=-1)
        if name == "lse":
            wide[infinite & undefined] = np.inf
        else:
            wide[undefined] = np.nan
    return wide


def round_up(allowed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round allowed errors up to 8 significand bits.

    Machines compute a budget with differences in its last bits. A budget that is above a number of 8 bits by
    less than 2^-40 of itself becomes that number, so that all machines write the same one.

    Examples
    --------
    >>> import numpy as np
    >>> round_up(np.array([0.0, 1.0, 1.001, np.inf])).tolist()
    [0.0, 1.0, 1.0078125, inf]
    """
    fraction, exponent = np.frexp(allowed * (1 - 2.0**-40))
    scale = 2**ALLOWED_DIGITS
    return np.where(np.isfinite(allowed), np.ldexp(np.ceil(fraction * scale) / scale, exponent), allowed)


@cache
def _everything() -> Backend:
    """Make a backend that offers every operation and argument, to ask the judge for budgets."""
    functions = {
        name: as_function(name, list(form.offers), lambda *_: None) for name, form in OPERATIONS.items()
    }
    attention = functions.pop("attention")
    return Backend("export", array_api_library("export", "", xp), attention, DTYPES, functions)
