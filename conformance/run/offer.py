"""What a backend offers, as data, and the verdicts on cases that it does not offer, made without a call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnspec import OPERATIONS
from attnspec.conformance.outside import cut
from attnspec.conformance.run.plan import Outline
from attnspec.conformance.verdict import OUTPUT_OF, Verdict
from attnspec.dtypes import SHORT
from attnspec.operations.gradients import primal

if TYPE_CHECKING:
    from attnspec.backends import Backend

#: Rules about the default of an option.
_DEFAULTS = {"SCORE-2": "scale"}


@dataclass(frozen=True)
class Offer:
    """What a backend offers: the parameters of its functions by operation, and more.

    `companions` are the operations that it implements itself, because its library may differentiate others.
    `given` are options of attention that every call passes. `constrained` says that it takes only some calls
    of attention.
    """

    backend: str
    library: str
    dtypes: Sequence[str]
    functions: Mapping[str, Sequence[str]]
    companions: Sequence[str]
    given: Sequence[str]
    constrained: bool

    def has(self, operation: str, argument: str) -> bool:
        """Whether it has the operation, and its function takes the argument."""
        return argument in self.functions.get(operation, ())

    def verdict(self, outline: Outline) -> Verdict | None:
        """Make the verdict on a case that it does not offer. None if the case must be judged to know.

        The judge finds the same, in this order.
        """
        for operation, _ in outline.calls:
            if "attention" not in self.functions and operation not in self.functions:
                return self._without_operation(outline, operation)
            if self.constrained and primal(operation) == "attention":
                return None
        missing = [dtype for dtype in outline.dtypes if dtype not in self.dtypes]
        if missing:
            return self._without(outline, f"has no {', '.join(missing)}", "dtype", missing)
        if not outline.calls or outline.related:  # a relation may need less than all of its calls
            return None
        return self._of_call(outline, *outline.calls[0])

    def _of_call(self, outline: Outline, operation: str, arguments: Sequence[str]) -> Verdict | None:
        rules = tuple(rule for rule in outline.rules if self._shows(rule, outline, operation))
        if not rules:
            return self._without_rules(outline, operation)
        if outline.refusal and rules[0] == "ERR-12":
            if outline.variants:
                return None
            if outline.fault.startswith("d_") and operation not in {"attention", *self.companions}:
                reason = f"{self.library} checks the cotangents, and {self.backend} does not see them"
                return self._verdict(outline, reason, rules=rules)
        if operation not in self.functions:
            return self._without_operation(outline, operation, rules)
        missing = [name for name in arguments if not self.has(operation, name)]
        if not missing:
            return None
        return self._without(outline, f"has no argument {', '.join(missing)}", "argument", missing, rules)

    def _shows(self, rule: str, outline: Outline, operation: str) -> bool:
        """Whether a case tests a rule on this backend."""
        if rule in ("NUM-5", "NUM-6"):
            return outline.dtype in SHORT
        if self._lacks_default(rule, operation):
            return False
        output = OUTPUT_OF.get(rule)
        return output is None or outline.refusal or self.has(operation, f"return_{output}")

    def _lacks_default(self, rule: str, operation: str) -> bool:
        return primal(operation) == "attention" and _DEFAULTS.get(rule) in self.given

    def _without_rules(self, outline: Outline, operation: str) -> Verdict:
        options = [_DEFAULTS[rule] for rule in outline.rules if self._lacks_default(rule, operation)]
        outputs = [*dict.fromkeys(OUTPUT_OF[rule] for rule in outline.rules if rule in OUTPUT_OF)]
        if options:
            reason = f"is always given {', '.join(options)}, and shows no default"
        else:
            reason = f"does not return what {', '.join(outline.rules)} is about"
        return self._without(outline, reason, "output", outputs)

    def _without_operation(self, outline: Outline, operation: str, rules: tuple[str, ...] = ()) -> Verdict:
        return self._without(outline, f"has no {operation}", "operation", [operation], rules)

    def _without(
        self, outline: Outline, reason: str, kind: str, lacks: Sequence[str], rules: tuple[str, ...] = ()
    ) -> Verdict:
        lacking = tuple(f"{kind} {name}" for name in lacks)
        return self._verdict(outline, f"{self.backend} {reason}", lacking, rules)

    def _verdict(
        self, outline: Outline, reason: str, lacks: tuple[str, ...] = (), rules: tuple[str, ...] = ()
    ) -> Verdict:
        return Verdict(
            self.backend,
            outline.name,
            outline.group,
            rules or outline.rules,
            "unsupported",
            outline.dtype,
            outline.calls[0].operation,
            reason=cut(reason),
            lacks=lacks,
            refusal=outline.refusal,
            traits=outline.traits,
            numbers=outline.numbers,
            code="lacks" if lacks else "not applicable",
        )


def offer_of(backend: "Backend") -> Offer | None:
    """Describe what a backend offers. None if only its cases tell, as for stored answers."""
    from attnspec.backends.backend import parameters
    from attnspec.backends.constraints import ANY

    if backend.cases:
        return None
    functions = {name: backend.function(name) for name in OPERATIONS}
    return Offer(
        backend.name,
        backend.library,
        backend.dtypes,
        {name: sorted(parameters(each)) for name, each in functions.items() if each is not None},
        tuple(backend.companions),
        backend.given,
        backend.constraints != ANY,
    )
