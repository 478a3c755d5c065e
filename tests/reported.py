"""Results made by hand, for tests of reports."""

import re
from dataclasses import replace

from attnspec import rules
from attnspec.conformance.attribution.finding import Diagnosis, Twin
from attnspec.conformance.attribution.known_failures import Known
from attnspec.conformance.results import Header, Results, Subject
from attnspec.conformance.verdict import Difference, Raise, Verdict

SUBJECT = Subject("m:f", "numpy", "2.4")


def _verdict(status, case, *rules, code="", group="", dtype="float32", **fields):
    return Verdict("m:f", f"{case}-float32", group, rules, status, dtype, code=code, **fields)


OFF = {"difference": Difference("value", "output", (2, 0), 1.4375, 0.0, 0.0, float("inf"), 2, 6)}
BITS = {"difference": Difference("bits", "output", (0,), 1.0, 1.5, count=1, size=2)}
RAISED = {"raised": Raise("ValueError", "no | <b>\x00", "/m.py", 7, "f")}
LACKS = {"reason": "m:f has no argument sinks", "lacks": ("argument sinks",), "dtype": ""}
PASS = _verdict("pass", "softmax-000", "SOFT-1", share=0.5, accuracy="full")
FAIL = _verdict("fail", "masking-empty-last", "MASK-6", "SOFT-1", code="differs", rule="MASK-6", **OFF)
FAIL = replace(FAIL, operation="attention", variant="uniform")
ERROR = _verdict("error", "numerics-long", "NUM-3", code="raised", group="plain", **RAISED)
UNSUPPORTED = _verdict("unsupported", "sinks", "SOFT-5", code="lacks", group="sinks", **LACKS)
NOT_SHOWN = _verdict(
    "unsupported", "alone", "NUM-10", code="relation", rule="NUM-10", reason="got other bits"
)
DEVIATION = _verdict("deviation", "masking-004", "MASK-1", "MASK-3", code="variant", rule="MASK-3")
DEVIATION = replace(DEVIATION, variant="bottom-right")
UNMET = _verdict("should not met", "repeated", "NUM-9", code="differs", rule="NUM-9", **BITS)
#: One of each status, of one backend.
VERDICTS = (PASS, FAIL, ERROR, UNSUPPORTED, NOT_SHOWN, DEVIATION, UNMET)
RESULTS = Results((SUBJECT,), VERDICTS, (Header("1", "chosen"),))
PERFECT = Results(
    (SUBJECT,),
    tuple(replace(PASS, case=f"{rule.id}-float32", rules=(rule.id,)) for rule in rules()),
    (Header("1"),),
)
KNOWN = Known("MASK-6", "m:f", "fail", "filled with -1e9", "https://x.example/1", (FAIL.case,))
OTHER = Known("NUM-3", "m:f", "error", "raises | today", "", (ERROR.case,))
FILLS = Diagnosis((Twin(("fills",), "Fill.", "MASK-6"),), 2, 1, 0.5, 1)


def perfect(*verdicts, **changes):
    """Results in which every rule passes, and these verdicts."""
    return replace(PERFECT, verdicts=(*PERFECT.verdicts, *verdicts), **changes)


def row(text, rule):
    """The cells of one rule, or of a chapter, in a table that was printed, but for its title."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"│ {rule} ")]
    return [part.strip() for part in line.strip("│").split("│")][2:]


def rows(text, prefix="[A-Z]+-"):
    return re.findall(rf"^│ ({prefix}[0-9]+)", text, re.MULTILINE)


ACCEPTED = replace(FAIL, case="r-float32", rules=("SHAPE-6",), rule="SHAPE-6", refusal=True, difference=None)
ACCEPTED = replace(ACCEPTED, code="not refused", traits=("refused",), reason="expected an error, got output")


def lacking(number, *missing, **fields):
    case = replace(PASS, status="unsupported", lacks=missing, share=0.0, accuracy="", **fields)
    return [replace(case, case=f"c-{'-'.join(missing)}-{n}-float32") for n in range(number)]
