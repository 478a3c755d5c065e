"""Generates the table of `spec/dialects.md`, which shows the rules on which libraries differ.

The table is made from the declared variants and deviations of backends. A complete run of the
suite fails if a declaration is wrong, so the table is verified.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnspec import Case, Rule, cases, rules
from attnspec.backends import NAMES, Backend, Deviation, Unsupported, load
from attnspec.citations import cited
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.judge import asked
from attnspec.dialect import described
from tools.gradient_dialects import gradient_table

#: The marks around the generated part of the page.
BEGIN, END = (
    "<!-- begin: tools.dialects -->",
    "<!-- end: tools.dialects -->",
)
_HEADING = "The numbers in the table stand for these deviations:"
_GRADIENTS = """### Gradients

The gradients that the libraries compute by automatic differentiation, from one call for each cell.
A call that a backend does not offer has an empty cell. `raises`: the library does not differentiate it.
`mean`: the query contributes the mean of its cotangents to the gradient of every value."""


def page(backends: Sequence[Backend]) -> str:
    """Return the generated part of the page: versions, the table, and the list of deviations."""
    versions = dict.fromkeys(f"{backend.library} {backend.version}" for backend in backends)
    parts = [f"Verified on {', '.join(versions)}.", table(backends), _HEADING, notes(backends)]
    parts += [_GRADIENTS, gradient_table([one for one in backends if one.function("attention_vjp")])]
    return "\n\n".join(parts) + "\n"


def table(backends: Sequence[Backend]) -> str:
    """Return a table with a row for each rule that has variants or from which a backend deviates."""
    numbers = _numbers(backends)
    lines = [
        f"| rule | | {' | '.join(backend.name for backend in backends)} |",
        f"| --- | --- |{' --- |' * len(backends)}",
    ]
    for rule in rules():
        if rule.variants or any(_of(rule, backend) for backend in backends):
            cells = " | ".join(cell(rule, backend, numbers) for backend in backends)
            lines.append(f"| [{rule.id}] | {rule.title} | {cells} |")
    return "\n".join(lines)


def cell(rule: Rule, backend: Backend, numbers: Mapping[Deviation, int]) -> str:
    """Return the cell of a rule and a backend.

    Examples
    --------
    >>> from attnspec import find_rule
    >>> from attnspec.backends import load
    >>> from tools.dialects import cell
    >>> cell(find_rule("MASK-6"), load("numpy-portable"), {})
    'holds'
    """
    theirs = _of(rule, backend)
    if rule.id in backend.dialect:
        said = f"`{described(backend.dialect)[rule.id]}`"
    elif any(deviation.is_general for deviation in theirs):
        said = "deviates"
    else:
        said = "holds" if theirs or is_offered(rule, backend) else ""
    if not theirs:
        return said
    listed = ", ".join(str(numbers[deviation]) for deviation in theirs)
    return f"{said} ({listed})" if said == "deviates" else f"{said} but for ({listed})"


def is_offered(rule: Rule, backend: Backend) -> bool:
    """Whether a rule applies to a backend: it accepts the call of some golden vector of the rule."""
    return any(_takes(backend, rule, case) for case in cases() if rule.id in case.rules)


def notes(backends: Sequence[Backend]) -> str:
    """Return the table of deviations, with the backends and the script that shows each."""
    lines = ["| | rule | what happens instead | where | shown by |", "| --- | --- | --- | --- | --- |"]
    for deviation, number in _numbers(backends).items():
        where = ", ".join(backend.name for backend in backends if deviation in backend.deviations)
        if deviation.dtypes:
            where += f"; {', '.join(deviation.dtypes)}"
        shown = deviation.source
        if not shown.startswith("https://"):
            shown = f"[{shown}](../backends/findings/{shown}.py)"
        lines.append(f"| {number} | [{deviation.rules[0]}] | {deviation.reason} | {where} | {shown} |")
    return "\n".join(lines)


def native() -> list[Backend]:
    """Load every backend with a declaration. The portable backends have none."""
    return [backend for backend in map(load, NAMES) if backend.dialect or backend.deviations]


def replaced(text: str, generated: str) -> str:
    """Replace the text between the marks.

    Examples
    --------
    >>> from tools.dialects import BEGIN, END, replaced
    >>> replaced(f"before {BEGIN} old {END} after", "new").split("->")[1].split("<!")[0].strip()
    'new'
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"dialects: expected {BEGIN} and {END} once each")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{generated}\n{END}{rest.partition(END)[2]}"


def _numbers(backends: Sequence[Backend]) -> dict[Deviation, int]:
    """Return the number of each deviation, in the order of their rules."""
    order = {rule.id: place for place, rule in enumerate(rules())}
    found = dict.fromkeys(deviation for backend in backends for deviation in backend.deviations)
    sorted_by_rule = sorted(found, key=lambda deviation: order[deviation.rules[0]])
    return {deviation: number for number, deviation in enumerate(sorted_by_rule, start=1)}


def _of(rule: Rule, backend: Backend) -> list[Deviation]:
    return [deviation for deviation in backend.deviations if deviation.rules[0] == rule.id]


def _takes(backend: Backend, rule: Rule, case: Case) -> bool:
    each = (one for one in in_each(case, backend.dtypes) if _is_asked(backend, rule, one))
    found = next(each, None)
    if found is None:
        return False
    given = (found.arguments, _of_one_depth(found.arguments))
    return any(_offers(backend, case.operation, arguments) for arguments in given)


def _is_asked(backend: Backend, rule: Rule, case: Case) -> bool:
    try:
        return rule.id in asked(backend, case)
    except Unsupported:
        return False


def _of_one_depth(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Give the values the depth of the keys, because some libraries require it and few rules are about it."""
    if not {"key", "value"} <= set(arguments):
        return dict(arguments)
    key, value = (arguments[name] for name in ("key", "value"))
    return {**arguments, "value": np.resize(value, (*value.shape[:-1], key.shape[-1]))}


def _offers(backend: Backend, operation: str, arguments: Mapping[str, Any]) -> bool:
    try:
        call(backend, operation, arguments)
    except Unsupported:
        return False
    except (Failure, Raised):
        return True
    return True


def main() -> None:
    """Print the generated part, or write it into the page."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page, spec/dialects.md")
    path = parser.parse_args().write
    generated = page(native())
    if path is None:
        print(generated)  # noqa: T201 - the output of a command
    else:
        path.write_text(cited(replaced(path.read_text(encoding="utf-8"), generated)), encoding="utf-8")


if __name__ == "__main__":
    main()
