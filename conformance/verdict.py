"""Verdicts: the result of one case on one backend, as data."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from attnspec import OPERATIONS, claimable
from attnspec.schema import SPELLINGS, spell

#: ``deviation`` is declared and verified. ``should not met`` is an unmet SHOULD. ``unsupported`` counts
#: neither for nor against a backend.
Status = Literal["pass", "fail", "error", "unsupported", "deviation", "should not met"]
STATUSES: tuple[Status, ...] = get_args(Status)
#: The accuracy classes of NUM-3, from the tightest to the loosest.
CLASSES: tuple[Literal["full", "cast", "storage"], ...] = ("full", "cast", "storage")
#: The statuses with which a backend does not conform.
BAD: tuple[Status, ...] = ("fail", "error")

#: Stands before a rule that was judged, among what verdicts show.
JUDGED = "judged "

#: Why a verdict has its status. `Verdict.reason` says more in free text.
Code = Literal[
    "",  # it passes
    # Unsupported:
    "lacks",  # the backend lacks what `Verdict.lacks` names
    "declined",  # the backend declined the call
    "no gradient",  # the backend computes no gradient
    "no gradient of an argument",  # the backend computes gradients, but not with an argument of the call
    "not applicable",  # another reason, such as a call outside of the constraints of the backend
    "left out",  # the limits of the run did not allow it
    # A rule does not hold:
    "differs",  # an output differs
    "not refused",  # a call returned that must raise
    "argument not named",  # the error names no argument at fault
    "argument changed",  # the call changed an argument
    "argument changed, values right",
    "argument changed, values wrong",
    "misprint",  # a printed figure disagrees
    "no result",  # what was returned is no result
    "relation",  # a relation between calls does not hold
    # Errors:
    "raised",  # the implementation raised
    "ended",  # its process ended, or gave no verdict
    "hung",  # its process did not end in time
    "broken",  # a program broke its protocol
    "not shown",  # no case shows what is declared
    # Declared and verified:
    "deviation",
    "variant",
]
CODES: tuple[Code, ...] = get_args(Code)

#: In the reason of a verdict on gradients that an implementation does not compute.
NO_GRADIENT = "computes no gradient"

#: How the reason begins of a call that an implementation declines by this exception.
DECLINES = "NotImplementedError"

#: How the reason of a verdict on a case begins that the limits of a run did not allow.
LEFT_OUT = "left out:"

#: The output that a backend must return for a rule to be tested.
OUTPUT_OF = {
    "SHAPE-4": "weights",
    "SOFT-4": "weights",
    "SHAPE-8": "lse",
    "SOFT-6": "lse",
    "SOFT-7": "lse",
    "DROP-3": "lse",
    "NUM-7": "lse",
    "SOFT-8": "max",
    "SOFT-9": "max",
}

#: Outputs that are lists, of which the counts are compared.
LISTS = frozenset(output.name for form in OPERATIONS.values() for output in form.results if output.lists)

#: In `Difference.starts`: the first of these is right, and another is wrong.
BATCH = "batch entries"

#: The kind of a difference.
Kind = Literal["shape", "dtype", "pattern", "value", "bits"]


@dataclass(frozen=True)
class Difference:
    """The element of an output with the largest error."""

    #: ``pattern`` is an unexpected or a missing NaN or infinity. ``bits`` is any difference if the same bits
    #: are required.
    kind: Kind
    output: str  # the name of the output in `attnspec.OPERATIONS`
    element: tuple[int, ...] = ()  # its index; empty for a shape or a dtype
    got: float | str = ""  # a number, or the shape or dtype in words
    expected: float | str = ""
    allowed: float = 0.0  # the budget of the element
    #: The error as a multiple of `allowed`. Infinite if `allowed` is 0.
    share: float = float("inf")
    count: int = 0  # the number of elements that differ
    size: int = 0  # the number of all elements
    #: The wrong outputs of the call, and the right ones.
    outputs: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    #: The axes of an output that are right up to an index and wrong from it on, such as ``rows 16``, or
    #: mostly wrong, such as ``rows -3`` for the last three; `BATCH` if the first entry of the batch is right.
    starts: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Raise:
    """An exception of an implementation: its type, its message and the innermost line that raised it.

    If the process ended or hung, only the line is set. `conversion` is the conversion of the adapter that
    raised instead of the implementation, with what it converted, such as ``to_library of key``. `valid` says
    that not the call raised that must be rejected, but the valid one beside it.
    """

    type: str
    message: str
    file: str = ""
    line: int = 0
    function: str = ""
    conversion: str = ""
    valid: bool = False


@dataclass(frozen=True)
class Verdict:
    """The result of one case or relation on one backend.

    Attributes
    ----------
    backend : str
        The name of the backend.
    case : str
        The name of the case or relation, which ends with its dtype.
    group : str
        Its group of generated cases. Empty for a golden vector.
    rules : tuple of str
        The rules that it tests on this backend.
    status : str
        One of `STATUSES`.
    dtype, operation : str
        The dtype and the operation of the case.
    rule : str
        The rule that is broken, not met or deviated from. Empty if all hold.
    reason : str
        More about the result, such as why it is unsupported or how a process ended.
    difference : Difference or None
        The difference, if an output differs.
    raised : Raise or None
        The exception, if the implementation raised.
    variant : str
        The variant of `rule` whose values the output has.
    ignored : str
        The argument that seems to be ignored: the exact result without it is the same.
    precision : str
        The dtype in which some step seems to be computed, judging by the size of the error.
    share : float
        The largest share of its budget that an element used.
    accuracy : str
        The tightest accuracy class that holds, or the profile that was needed.
    declared : tuple of str
        The declared deviations that it shows, by `Deviation.id`, and the rules besides `rule` from which
        it deviates.
    seconds : float
        The time that judging took.
    repeatable : bool
        False if the same call, repeated, had another verdict.
    declined : bool
        True if the backend has the arguments, but declined the call by `Unsupported` or
        `NotImplementedError`. The reason is the message.
    lacks : tuple of str
        What the backend lacks for the case, each with its kind: ``operation rotary``, ``argument window``,
        ``dtype float16``, ``output lse`` or ``precondition finite``. Empty if it is unsupported for another
        reason.
    refusal : bool
        Whether the call must be rejected.
    alone : bool
        False if the same call passes as the first call of a process. Only tried for a few failures.
    after : str
        The name of the case after which it fails, if it is not wrong alone and a short search found one.
    probed : bool
        Whether the weights that differ were determined by calls with the identity as value.
    traits : tuple of str
        The traits of the call, as in `attnspec.conformance.judge.traits`.
    numbers : int
        The number of numbers in the arrays of its calls.
    sizes : tuple of int
        The batch entries, heads, key heads, queries, keys, features and features of values of its call. Empty
        for several calls, and for one that has no queries and keys.
    code : str
        Why it has its status, as one of `CODES`.

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
    lacks: tuple[str, ...] = ()
    refusal: bool = False
    alone: bool = True
    after: str = ""
    probed: bool = False
    traits: tuple[str, ...] = ()
    numbers: int = 0
    sizes: tuple[int, ...] = ()
    code: Code = ""

    @property
    def bad(self) -> bool:
        """Whether the backend does not conform because of it."""
        return self.status in BAD

    @property
    def accepts(self) -> bool:
        """Whether it is a call that must be rejected and returned a result, whatever the result is."""
        return self.bad and self.code == "not refused"

    @property
    def main_rule(self) -> str:
        """The rule that it is about: the one that does not hold, or the first that it tests."""
        return self.rule or next(iter(self.rules), "")

    @property
    def ended(self) -> bool:
        """Whether the process ended in the call, or had to be ended."""
        has_raised = self.raised is not None and bool(self.raised.type)
        return self.status == "error" and self.difference is None and not has_raised

    @property
    def stem(self) -> str:
        """The name of the case without its dtype."""
        return self.case.removesuffix(f"-{self.dtype}")


def shown_declarations(verdicts: Iterable[Verdict]) -> set[str]:
    """Return what the verdicts of one backend show of its declarations.

    These are its deviations, the rules of its variants, alone and with the dtype, and with `JUDGED`
    before them the rules that were judged and can be claimed.
    """
    found = list(verdicts)
    told = {
        (text, verdict.dtype)
        for verdict in found
        for text in (*verdict.declared, *([verdict.rule] if verdict.status == "deviation" else []))
    }
    deviations = {text for text, _ in told} | {f"{text} {dtype}" for text, dtype in told}
    judged = {rule for verdict in found if verdict.status in ("pass", *BAD) for rule in verdict.rules}
    return deviations | {f"{JUDGED}{rule}" for rule in judged & set(claimable())}


def rules_with_outputs(rules: tuple[str, ...], returns: Collection[str]) -> tuple[str, ...]:
    """Leave out rules about outputs that are not returned, except the first rule of the case."""
    first, *others = rules
    return first, *(rule for rule in others if OUTPUT_OF.get(rule, "") in ("", *returns))


def not_judged_in(missing: Iterable[str], dtypes: Iterable[str]) -> str:
    """Return the reason for calls of other dtypes than a backend names: its function may take them."""
    return f"is judged in {', '.join(dtypes)}, not in {', '.join(missing)}"


def to_json(thing: Any) -> Any:
    """Convert a verdict, or a part of one, to plain JSON. Fields with their default are left out."""
    if isinstance(thing, float):
        return spell(thing)
    if isinstance(thing, tuple):
        return [to_json(part) for part in thing]
    if not hasattr(thing, "__dataclass_fields__"):
        return thing
    found = ((field, getattr(thing, field.name)) for field in fields(thing))
    return {field.name: to_json(value) for field, value in found if value != field.default}


def from_json(entry: Mapping[str, Any]) -> Verdict:
    """Make a verdict from the result of `to_json`."""
    plain = dict(entry)
    if plain.get("status") not in STATUSES:
        raise ValueError(f"status: expected one of {', '.join(STATUSES)}, got {plain.get('status')!r}")
    if plain.get("code", "") not in CODES:
        raise ValueError(f"code: expected one of {', '.join(CODES[1:])}, got {plain['code']!r}")
    for name in ("rules", "declared", "traits", "lacks", "sizes"):
        plain[name] = tuple(plain.get(name, ()))
    if "share" in plain:
        plain["share"] = _number(plain["share"])
    if plain.get("difference") is not None:
        given = {name: _number(value) for name, value in plain["difference"].items()}
        lists = {name: tuple(given.get(name, ())) for name in ("element", "outputs", "right", "starts")}
        plain["difference"] = Difference(**{**given, **lists})
    if plain.get("raised") is not None:
        plain["raised"] = Raise(**plain["raised"])
    verdict = Verdict(**plain)
    return verdict if "code" in plain else replace(verdict, code=_code_of(verdict))


#: How reasons begin in results that were written before verdicts had codes, and the code of each.
_BEGINNINGS: tuple[tuple[str, Code], ...] = (
    ("its process ", "ended"),
    ("did not end ", "hung"),
    ("expected an error that names ", "argument not named"),
    ("expected an error, got ", "not refused"),
    (r"\w+: expected to be unchanged", "argument changed"),
    ("worked example ", "misprint"),
    ("result: expected a tuple of ", "no result"),
    (r"\w+: expected (an array|a gradient) ", "no result"),
)


def _code_of(verdict: Verdict) -> Code:
    """Derive the code of a verdict that was written before verdicts had codes, from its reason."""
    if verdict.status == "pass":
        return ""
    if verdict.status == "deviation":
        return "variant" if verdict.variant else "deviation"
    if verdict.status == "unsupported" and not verdict.rule:
        return _code_of_unsupported(verdict)
    if verdict.status == "error" and not verdict.case:
        return "not shown"
    if verdict.raised is not None and verdict.raised.type:
        return "raised"
    if verdict.difference is not None:
        return "differs"
    found = next((code for begins, code in _BEGINNINGS if re.match(begins, verdict.reason)), None)
    return found or ("broken" if verdict.status == "error" else "relation")


def _code_of_unsupported(verdict: Verdict) -> Code:
    if verdict.lacks:
        return "lacks"
    if verdict.reason.startswith(LEFT_OUT):
        return "left out"
    if verdict.reason.startswith(f"{verdict.backend} {NO_GRADIENT}"):
        of_all = verdict.reason.startswith(f"{verdict.backend} {NO_GRADIENT}: ")
        return "no gradient" if of_all else "no gradient of an argument"
    return "declined" if verdict.declined else "not applicable"


def _number(value: Any) -> Any:
    return SPELLINGS.get(value, value) if isinstance(value, str) else value
