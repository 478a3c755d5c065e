"""The text of a finding: what its failures have in common, and which other failures it stands for."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from math import isfinite

from attnspec import OPERATIONS, rules
from attnspec.backends.preconditions import PRECONDITIONS
from attnspec.conformance import traits
from attnspec.conformance.attribution.common import traits_of
from attnspec.conformance.attribution.exceptions import exception_key, never_returns
from attnspec.conformance.attribution.finding import Common, Diagnosis, Finding
from attnspec.conformance.attribution.precision import PRECISE, TRACES, absolute_error
from attnspec.conformance.outside import one_line, plain
from attnspec.conformance.render.reproduction import check_command
from attnspec.conformance.render.shared import declaration_lines, dtype_lines, raising_lines, variant_lines
from attnspec.conformance.render.text import details, exception, title, with_title
from attnspec.conformance.render.words import INTEGERS, trait_text
from attnspec.conformance.verdict import BATCH, Raise, Verdict

#: The largest number of rules that have a line of their own, and of calls in it.
_MOST_RULES, _MOST_CALLS = 8, 3
#: The largest number of other messages that are shown, and of their characters.
_MOST_MESSAGES, _MOST_CHARACTERS = 8, 160
#: Nearly all calls fail if at least this many, and this share of them, do.
_FEW, _NEARLY = 5, 0.8
#: How the groups of calls that must be rejected begin.
_REFUSED = "refused: "
#: The kinds of findings that are not about wrong values.
_KINDS = {
    "repeated": "not repeatable: failing calls were repeated, and some of them had another result",
    "earlier": "depends on earlier calls: a call that failed passes as the first call of a process",
}


def finding_text(finding: Finding, most: int | None = None) -> str:
    """Describe a finding: the failure that shows it best, its cause, and its other failures.

    It names all rules under which these fail, or at most some.
    """
    return with_title(finding_title(finding), finding.verdict, finding_details(finding, most))


def finding_line(finding: Finding) -> str:
    """Describe a finding in one line, with the command that judges its first case again."""
    verdict, number = finding.verdict, len(finding.failures)
    cases = f" ({number} cases)" if number > 1 else ""
    command = check_command(verdict, finding.seed) if verdict.case else ""
    cases += f" (none with {_requires(finding)})" if finding.preconditions else ""
    named = f" ({', '.join(finding.diagnosis.names)})" if finding.diagnosis else ""
    return one_line(": ".join(filter(None, (f"{finding_title(finding)}{named}{cases}", command))))


def accepted_text(finding: Finding, *, every: bool = False) -> str:
    """Count the calls that must be rejected and are accepted, by rule, and say how to see one fail."""
    number, rules = len(finding.failures), [finding.rule, *finding.others]
    calls = "1 call is" if number == 1 else f"{number} calls are"
    by_rule = Counter(verdict.main_rule for verdict in finding.failures)
    counted = ", ".join(f"{rule} ({by_rule[rule]})" for rule in dict.fromkeys(rules))
    lines = [f"refusals: {calls} accepted that the standard rejects: {counted}"]
    lines += _by_rule(dict.fromkeys(rules), finding.failures) if every else ()
    return plain("\n".join([f"{lines[0]} (with --require refusals they fail)", *lines[1:]]))


def finding_title(finding: Finding) -> str:
    """Return the broken rule. If no call returns a result, this is no matter of one rule."""
    if finding.kind == "always":
        return never_returns(finding.failures) or "no call returns"
    raised = finding.verdict.raised
    if finding.kind == "raised" and raised is not None and not raised.conversion:
        return f"raises {raised.type}, in cases of {title(finding.verdict)}"
    return title(finding.verdict)


#: Properties of the numbers and the sizes of one failing call that may be the cause.
_TELLING = (traits.LARGE, traits.HUGE, traits.FAR, traits.SPECIAL, traits.EMPTY, traits.UNEQUAL_BLOCKS)
#: The rules that an option of attention means the same in a form.
_OF_FORMS = ("STACK-2", "PACK-2", "PAGE-1", "QUANT-8", "LATENT-1", "SPARSE-1", "SHARD-1")
#: What an `attnspec.toml` says of a function that offers no calls with a trait.
_LIMITS = {traits.SHARED: 'heads = "equal"', traits.OTHER_DEPTH: 'value_depth = "key"'}


def finding_details(finding: Finding, most: int | None = None) -> str:
    """Describe a finding without its title."""
    named = [diagnosis_text(finding.diagnosis)] if finding.diagnosis else []
    declared = (
        lines(finding.failures) for lines in (declaration_lines, raising_lines, dtype_lines, variant_lines)
    )
    others = [*other_lines(finding, most), *chain.from_iterable(declared)]
    text = details(finding.verdict, finding.seed, [*named, *cause_lines(finding)], others)
    for pair in filter(None, finding.names.split(",")):
        ours, _, own = pair.partition("=")
        text = text.replace(f"`{ours}`", f"`{ours}` (`{own}`)", 1)
    return text


def cause_lines(finding: Finding) -> Iterator[str]:
    """Describe what the calls of a finding have in common, and its other properties."""
    if finding.kind in _KINDS:
        yield _KINDS[finding.kind]
    if finding.kind == PRECISE:
        yield f"all failures are due to the precision: {_largest_errors(finding)}"
    if finding.kind == TRACES:
        largest = max(map(absolute_error, finding.failures), default=0.0)
        yield f"all errors are at most {largest:.2g}: weights that should be 0, or nearly 0, are larger"
    # A wrong implementation with the same results explains them; that they are small is chance then.
    if finding.precision and not (finding.diagnosis and finding.diagnosis.twins):
        yield f"all failures are within the budget of {finding.precision}: some step may be computed in it"
    for number, common in enumerate((finding.common, *finding.further)):
        yield from _common_line(common, finding.failures, "others fail" if number else "fails")
    yield from _single_line(finding)
    yield from _option_lines(finding)
    if finding.probed:
        yield finding.probed
    yield from _dtype_line({*finding.verdict.traits}.difference(finding.common.traits))
    yield from _start_lines(finding)
    yield from _limit_line(finding)
    yield from _result_lines(finding)
    yield from _value_line(finding.failures)
    if finding.kind != "refused":
        yield from (f"also: {text}" for text in _other_exceptions(finding.failures))


def _single_line(finding: Finding) -> Iterator[str]:
    """Say the options and the sizes of the one call that fails, of which any may be the cause."""
    verdict = finding.verdict
    if len(finding.failures) != 1 or not verdict.sizes or verdict.operation not in OPERATIONS:
        return
    known = OPERATIONS[verdict.operation].arguments
    options = [trait for trait in verdict.traits if trait in known and not known[trait].required]
    telling = [trait_text(trait) for trait in (*options, *_TELLING) if trait in verdict.traits]
    given = " and ".join(telling) or "without options"
    queries, keys = verdict.sizes[3:5]
    yield f"fails: one call {given}, of {queries} queries and {keys} keys"


def _option_lines(finding: Finding) -> Iterator[str]:
    """Say what the options do that the failing calls of a form have in common, by the rules of attention."""
    if finding.rule not in _OF_FORMS or finding.diagnosis:
        return
    having = finding.common.traits or (finding.verdict.traits if len(finding.failures) == 1 else ())
    known, titles = OPERATIONS["attention"].arguments, {rule.id: rule.title for rule in rules()}
    for name in dict.fromkeys(traits.option_of(trait) for trait in having):
        if name in known and known[name].rule in titles:
            yield f"`{name}`: {known[name].rule} {titles[known[name].rule]}"


def _dtype_line(found: Iterable[str]) -> Iterator[str]:
    """Name the arguments of a call that hold integers of another dtype than int32 and int64."""
    pairs = [trait.rpartition(" of ") for trait in sorted(found)]
    names: dict[str, list[str]] = {}
    for name, _, dtype in pairs:
        if name and dtype in INTEGERS:
            names.setdefault(dtype, []).append(f"`{name}`")
    for dtype, own in names.items():
        yield f"{' and '.join(own)} {'is' if len(own) == 1 else 'are'} of {dtype}"


def _start_lines(finding: Finding) -> Iterator[str]:
    """Say which rows or others are wrong, where these are the same in nearly all failing calls."""
    for start, number, every in finding.starts:
        what, _, first = start.rpartition(" ")
        calls = "every failing call" if number == every else f"{number} of {every} failing calls"
        if start == BATCH:
            yield f"the first of the {BATCH} is right in {calls}"
        elif first.startswith("-"):
            yield f"only the last {first[1:]} {what} are wrong, or some of them, in {calls}"
        else:
            yield f"the {what} from {first} on are wrong in {calls}"


def _result_lines(finding: Finding) -> Iterator[str]:
    """Describe which gradients are wrong, and which variants and other calls the results equal."""
    yield from _forward_line(finding)
    yield from _outputs_line(finding.failures)
    variant = finding.variant
    if variant is not None and variant.equal < variant.compared:
        calls = f"{variant.equal} of {variant.compared} failing calls under {finding.rule}"
        yield f"the variant `{variant.name}`: {calls} equal it; the others may break another rule too"
    if names := finding.other_variants:
        tried = ", ".join(f"`{name}`" for name in names)
        yield f"no variant of {finding.rule} has these results (tried: {tried})"
    for ignored in finding.ignored:
        # If all calls show it, and the first one too, the text of the first one says so.
        if ignored.same < ignored.compared or finding.failures[0].ignored != ignored.argument:
            calls = f"{ignored.same} of {ignored.compared} failing calls with it"
            yield f"the result is the same without `{ignored.argument}` in {calls}"


def _forward_line(finding: Finding) -> Iterator[str]:
    """Say that the output is right where only gradients are wrong."""
    shared, number = finding.right
    if number:
        named = f" {' and '.join(map(trait_text, shared))}" if shared else ""
        calls = f"the only call{named}" if number == 1 else f"all {number} calls{named}"
        yield f"only gradients are wrong, the output is right in {calls}"


def _outputs_line(failures: Sequence[Verdict]) -> Iterator[str]:
    """Name the wrong outputs and those that are right in every failing call that returns them."""
    forward = [verdict for verdict in failures if traits.GRADIENT not in verdict.traits] or failures
    differences = [verdict.difference for verdict in forward if verdict.difference]
    # Weights that are determined from other calls are wrong because the output is.
    own = [
        verdict.difference for verdict in forward if verdict.difference and not verdict.probed
    ] or differences
    wrong = dict.fromkeys(name for off in own for name in off.outputs or (off.output,))
    returned = Counter(name for off in differences for name in off.right if name not in wrong)
    if returned and len(differences) == len(forward):
        number = min(returned.values())
        calls = (
            "every failing call" if number == len(failures) else f"all {number} failing calls that return it"
        )
        yield f"only {_names(wrong)} wrong, {_names(returned)} right in {calls}"


def _value_line(failures: Sequence[Verdict]) -> Iterator[str]:
    """Count the calls that change an argument and whose values are right."""
    codes = Counter(verdict.code for verdict in failures)
    right, wrong = codes["argument changed, values right"], codes["argument changed, values wrong"]
    if right + wrong > 1:
        yield f"the values are right in {right} of {right + wrong} calls that change an argument"


def _names(names: Iterable[str]) -> str:
    listed = [*names]
    return f"{' and '.join(listed)} {'is' if len(listed) == 1 else 'are'}"


def _limit_line(finding: Finding) -> Iterator[str]:
    """Name the key by which a function declines the calls of a finding, if these alone fail, all of them."""
    if finding.preconditions:
        words = " and ".join(PRECONDITIONS[name][0] for name in finding.preconditions)
        yield f"if its documentation requires {words}: {_requires(finding)} under [backend] in attnspec.toml"
    common, off = finding.common, [verdict.difference for verdict in finding.failures]
    if all(x and x.kind == "dtype" and x.got == "float32" and "float64" in str(x.expected) for x in off):
        yield "if it promises no float64, leave that out: dtypes = [...] under [backend] in attnspec.toml"
    keys = [_LIMITS[trait] for trait in common.traits if trait in _LIMITS]
    empty = all(traits.NOTHING in verdict.traits for verdict in finding.failures)
    alone = common.failing == common.judged and not common.others
    if finding.kind == "raised" and keys and alone and not empty:
        yield f"if it offers no such calls, write {' and '.join(keys)} under [backend] in attnspec.toml"


def _requires(finding: Finding) -> str:
    return f"requires = {json.dumps(finding.preconditions)}"  # a list of strings is the same in TOML


def other_lines(finding: Finding, most: int | None = None) -> Iterator[str]:
    """Count the other failures, under the rule of the finding and under other rules."""
    if finding.kind == "always":
        yield f"so do {len(finding.failures) - 1} more cases of {finding.backend}, under all rules"
        return
    others = finding.others.copy()
    own = others.pop(finding.rule, 0)
    if own:
        yield f"(and {own} more of {finding.backend} under {finding.rule})"
    if others:
        cases = sum(others.values())
        under = "another rule" if len(others) == 1 else f"{len(others)} other rules"
        more = f" and {len(others) - most} more" if most and len(others) > most else ""
        named = f"{', '.join([*others][:most])}{more}"
        yield f"also: {cases} case{'s' * (cases > 1)} under {under}, {_relation(finding)}: {named}"
    if finding.kind == "refused" and len(finding.failures) > 1:
        yield from _by_rule([finding.rule, *others], finding.failures)
    elif finding.mixed:
        yield from _by_rule(others, finding.failures[1:])


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """Name the entries of the gallery that have the results of a backend, and say how well they fit."""
    names = ", or ".join(
        f"{_names_text(twin.names)} ({twin.sentence.rstrip('.')}; {twin.rule})" for twin in diagnosis.twins
    )
    same, number = diagnosis.same_passing, diagnosis.failing
    calls = f"{number} of {number} failing cases, {same} of {diagnosis.passing} passing ones"
    if diagnosis.path:
        trait, has = diagnosis.path
        where = f"{'only' if has else 'but not'} in calls {trait_text(trait)}"
        return f"consistent with: {names}, {where} (the same on {calls})"
    return f"consistent with: {names} ({calls}, within {diagnosis.share:.1f} budgets)"


def _names_text(names: Sequence[str]) -> str:
    """Join the names of entries. Of those that differ in one number, the others have their numbers only."""
    numbers = [re.findall(r"[0-9]+", name) for name in names]
    alike = len({re.sub(r"[0-9]+", "", name) for name in names}) == 1
    if len(names) < 2 or not alike or any(len(own) != 1 for own in numbers):
        return " or ".join(names)
    return f"{names[0]} (or of {', '.join(number for (number,) in numbers[1:])})"


def _common_line(common: Common, failures: Sequence[Verdict], fails: str) -> Iterator[str]:
    related = sum(traits.RELATED in verdict.traits for verdict in failures)
    beside = f"; and {related} comparison{'s' * (related > 1)} of calls" if related < len(failures) else ""
    beside = beside if related else ""
    if not common.traits and 1 < common.failing < common.judged:
        trait, passing = common.lacked
        everywhere = common.failing >= max(_FEW, _NEARLY * common.judged)
        none = f", none of {passing} calls {trait_text(trait)}" if trait else ""
        more = ", of every kind" if everywhere else none
        yield f"{fails}: {common.failing} of {common.judged} calls{more}{beside}"
    if common.traits and common.failing > 1:  # of one call any traits are its own
        calls = " and ".join(map(trait_text, common.traits))
        others = f", {common.others} of {common.of_others} others" if common.of_others else ""
        yield f"{fails}: {common.failing} of {common.judged} calls {calls}{others}{beside}"


def _largest_errors(finding: Finding) -> str:
    """Describe the largest error in each dtype. Outside the range of a dtype there is no budget."""
    shares: dict[str, float] = {}
    for verdict in finding.failures:
        difference = verdict.difference
        share = difference.share if difference and difference.kind == "value" else 0.0
        if isfinite(share):
            shares[verdict.dtype] = max(share, shares.get(verdict.dtype, 0.0))
    return ", ".join(f"up to {share:.3g} budgets in {dtype}" for dtype, share in sorted(shares.items()))


def _other_exceptions(failures: Sequence[Verdict]) -> list[str]:
    """Describe the exceptions among failures that differ from that of the first one."""
    counts: Counter[tuple[str, ...]] = Counter()
    texts: dict[tuple[str, ...], str] = {}
    for verdict in failures:
        if verdict.raised is not None and verdict.raised.type:
            key = exception_key(verdict)
            counts[key] += 1
            texts.setdefault(key, _short_exception(verdict.raised))
    if failures:
        counts.pop(exception_key(failures[0]), None)
    lines = [f"{n} case{'s' * (n > 1)}: {texts[key]}" for key, n in counts.most_common(_MOST_MESSAGES)]
    more = sum(n for _, n in counts.most_common()[_MOST_MESSAGES:])
    return [*lines, f"{more} more cases with other messages"] if more else lines


def _short_exception(raised: Raise) -> str:
    """Return the end of a message, since those of libraries begin with a place in their sources."""
    line = one_line(raised.message.strip().partition("\n")[0])
    return exception(raised, line if len(line) <= _MOST_CHARACTERS else f"...{line[-_MOST_CHARACTERS:]}")


def _relation(finding: Finding) -> str:
    if finding.kind == "refused":
        return "calls that must be rejected and are not"
    having = finding.common.traits
    if having and all({*having} <= traits_of(verdict) for verdict in finding.failures):
        return f"all of them calls {' and '.join(map(trait_text, having))}"
    bug = finding.diagnosis
    if bug and not bug.path and bug.failing >= len(finding.failures):  # nothing is left for another cause
        return "consistent with it too"
    return "which may have other causes"


def _by_rule(rules: Iterable[str], failures: Sequence[Verdict]) -> Iterator[str]:
    """Yield a line for each rule, with the calls that fail under it."""
    for rule in list(rules)[:_MOST_RULES]:
        calls = list(dict.fromkeys(_call(verdict) for verdict in failures if verdict.main_rule == rule))
        more = f" and {len(calls) - _MOST_CALLS} more" if len(calls) > _MOST_CALLS else ""
        if calls:
            yield f"    {rule}: {'; '.join(calls[:_MOST_CALLS])}{more}"


def _call(verdict: Verdict) -> str:
    """Describe a call: what is wrong with it if it must be rejected, or the name of its case."""
    if traits.REFUSED not in verdict.traits:
        return f"case {verdict.stem}"
    return verdict.group.removeprefix(_REFUSED) or _titles().get(verdict.stem, f"case {verdict.stem}")


@cache
def _titles() -> dict[str, str]:
    """Return the title of each golden vector."""
    from attnspec import cases  # it reads the vectors, which only a refusal that is missing needs

    return {case.id: case.title for case in cases()}
