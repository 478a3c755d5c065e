"""Verdicts: what the suite finds of one backend on one case, as data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from attnspec.spelling import SPELLINGS, spell

#: ``deviation`` is declared and was verified; ``should not met`` is an unmet SHOULD;
#: ``unsupported`` counts neither for nor against a backend.
Status = Literal["pass", "fail", "error", "unsupported", "deviation", "should not met"]
STATUSES: tuple[Status, ...] = get_args(Status)
#: The accuracy classes of NUM-3, from the tightest to the loosest.
CLASSES: tuple[Literal["full", "cast", "storage"], ...] = ("full", "cast", "storage")
#: Those by which a backend does not conform.
BAD: tuple[Status, ...] = ("fail", "error")

#: In the reason of a verdict on gradients that an implementation does not compute.
NO_GRADIENT = "computes no gradient"

#: What of an output differs.
Kind = Literal["shape", "dtype", "pattern", "value", "bits"]


@dataclass(frozen=True)
class Difference:
    """The element of an output that is furthest from what it must be.

    Attributes
    ----------
    kind : {"shape", "dtype", "pattern", "value", "bits"}
        ``pattern`` is a NaN or an infinity where there must be none, or the other
        way round; ``bits`` is any difference where the same bits are required.
    output : str
        Which output, by its name in `attnspec.OPERATIONS`.
    element : tuple of int
        Its index; empty for a shape or a dtype.
    got, expected : float or str
        A number, or the shape or dtype in words.
    allowed : float
        The largest error of a correct implementation there.
    share : float
        The error as a multiple of `allowed`; infinite where nothing may be off.
    count, size : int
        How many elements of how many differ.
    """

    kind: Kind
    output: str
    element: tuple[int, ...] = ()
    got: float | str = ""
    expected: float | str = ""
    allowed: float = 0.0
    share: float = float("inf")
    count: int = 0
    size: int = 0


@dataclass(frozen=True)
class Raise:
    """An exception of an implementation: its type, its message and the innermost line that raised it.

    Where the process ended or hung there is the line alone.
    """

    type: str
    message: str
    file: str = ""
    line: int = 0
    function: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the suite finds of one backend on one case or relation.

    Attributes
    ----------
    backend : str
        Its name.
    case : str
        The name of the case or relation, which ends with its dtype.
    group : str
        The group of generated cases that it belongs to; empty for a golden vector.
    rules : tuple of str
        The rules it bears on, for this backend.
    status : str
        One of `STATUSES`.
    dtype, operation : str
        Of the case.
    rule : str
        The rule that is broken, not met or deviated from; empty where all hold.
    reason : str
        What else there is to say: why it is unsupported, what a relation found, how a process ended.
    difference : Difference or None
        What differs, where an output does.
    raised : Raise or None
        What the implementation raised, where that is the finding.
    variant : str
        The variant of `rule` whose values the output has.
    ignored : str
        The argument without which the result would be the same.
    precision : str
        The dtype in which some step was computed, where the result is off by just that.
    share : float
        The largest share of its budget that an element used.
    accuracy : str
        The tightest accuracy class that holds, or the profile that was needed.
    declared : tuple of str
        The declared deviations that showed, by `Deviation.id`.
    seconds : float
        How long judging took.
    repeatable : bool
        False where the same call, repeated, gave another verdict.
    declined : bool
        True where it has the arguments and the call itself said that it does not offer this,
        by `Unsupported` or `NotImplementedError`; the reason is what it said.
    refusal : bool
        Whether the call is one that has to be refused, and not one with a result.
    alone : bool
        False where the same call passes as the first one of a process; asked of a few failures of a run.
    probed : bool
        Whether the weights that differ were not returned, and seen by calls with the identity as value.
    traits : tuple of str
        What kind of call it is, as `attnspec.conformance.judge.traits` says it.
    numbers : int
        How many numbers stand in the arrays of its calls.

    Examples
    --------
    >>> from attnspec.conformance.verdict import Verdict
    >>> Verdict("mine", "masking-empty-last-float32", "", ("MASK-1",), "pass").bad
    False
    """

    backend: str
    case: str
    group: str
    rules: tuple[str, ...]
    status: Status
    dtype: str = ""
    operation: str = ""
    rule: str = ""
    reason: str = ""
    difference: Difference | None = None
    raised: Raise | None = None
    variant: str = ""
    ignored: str = ""
    precision: str = ""
    share: float = 0.0
    accuracy: str = ""
    declared: tuple[str, ...] = ()
    seconds: float = 0.0
    repeatable: bool = True
    declined: bool = False
    refusal: bool = False
    alone: bool = True
    probed: bool = False
    traits: tuple[str, ...] = ()
    numbers: int = 0

    @property
    def bad(self) -> bool:
        """Whether the backend does not conform by it."""
        return self.status in BAD


def shown(verdicts: Iterable[Verdict]) -> set[str]:
    """Name the deviations that the verdicts of one backend show, and the rules of declared variants."""
    found = list(verdicts)
    return {text for verdict in found for text in verdict.declared} | {
        verdict.rule for verdict in found if verdict.status == "deviation"
    }


def to_json(thing: Any) -> Any:
    """Turn a verdict, or what stands in one, into plain JSON; fields that have their default are left out.

    Examples
    --------
    >>> from attnspec.conformance.verdict import Verdict, to_json
    >>> verdict = Verdict("b", "masking-empty-last-float32", "", ("MASK-1",), "pass", share=float("inf"))
    >>> to_json(verdict)["share"]
    'Infinity'
    """
    if isinstance(thing, float):
        return spell(thing)
    if isinstance(thing, tuple):
        return [to_json(part) for part in thing]
    if not hasattr(thing, "__dataclass_fields__"):
        return thing
    found = ((field, getattr(thing, field.name)) for field in fields(thing))
    return {field.name: to_json(value) for field, value in found if value != field.default}


def from_json(entry: Mapping[str, Any]) -> Verdict:
    """Make a verdict of what `to_json` made of it.

    Raises
    ------
    TypeError, ValueError
        When it is no verdict.

    Examples
    --------
    >>> from attnspec.conformance.verdict import Verdict, from_json, to_json
    >>> verdict = Verdict("b", "masking-empty-last-float32", "", ("MASK-1",), "pass")
    >>> from_json(to_json(verdict)) == verdict
    True
    """
    plain = dict(entry)
    if plain.get("status") not in STATUSES:
        raise ValueError(f"status: expected one of {', '.join(STATUSES)}, got {plain.get('status')!r}")
    for name in ("rules", "declared", "traits"):
        plain[name] = tuple(plain.get(name, ()))
    if "share" in plain:
        plain["share"] = _number(plain["share"])
    if plain.get("difference") is not None:
        given = {name: _number(value) for name, value in plain["difference"].items()}
        plain["difference"] = Difference(**{**given, "element": tuple(given.get("element", ()))})
    if plain.get("raised") is not None:
        plain["raised"] = Raise(**plain["raised"])
    return Verdict(**plain)


def _number(value: Any) -> Any:
    return SPELLINGS.get(value, value) if isinstance(value, str) else value
