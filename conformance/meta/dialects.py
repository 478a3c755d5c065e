"""The table of `spec/dialects.md`: what each library does where a rule is contested, from declarations alone.

A declaration is a variant or a deviation of a `Backend`. A whole run of the suite
fails where one does not hold or does not show, so what stands here is verified.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnspec import Case, Rule, cases, rules
from attnspec.backends import NAMES, Backend, Deviation, Unsupported, load
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.judge import asked
from attnspec.conformance.meta.gradient_dialects import gradient_table

#: Between these the page is written, and nowhere else.
BEGIN, END = (
    "<!-- begin: attnspec.conformance.meta.dialects -->",
    "<!-- end: attnspec.conformance.meta.dialects -->",
)
_HEADING = "The deviations, by the numbers that stand in the table:"
_GRADIENTS = """### Gradients

The gradients that the libraries compute by automatic differentiation, from one call for each cell.
A call that a backend does not offer has an empty cell. `raises`: the library does not differentiate it.
`mean`: the query contributes the mean of its cotangents to the gradient of every value."""


def page(backends: Sequence[Backend]) -> str:
    """Write the generated part of the page: versions, the table, and what the deviations are.

    Parameters
    ----------
    backends : sequence of Backend
        A column each.

    Returns
    -------
    str
        Markdown; the first line alone tells of versions.
    """
    versions = dict.fromkeys(f"{backend.library} {backend.version}" for backend in backends)
    parts = [f"Verified on {', '.join(versions)}.", table(backends), _HEADING, notes(backends)]
    parts += [_GRADIENTS, gradient_table([one for one in backends if one.function("attention_vjp")])]
    return "\n\n".join(parts) + "\n"


def table(backends: Sequence[Backend]) -> str:
    """Write a row for each contested rule: one with variants, or from which somebody deviates."""
    numbers = _numbers(backends)
    lines = [
        f"| rule | | {' | '.join(backend.name for backend in backends)} |",
        f"| --- | --- |{' --- |' * len(backends)}",
    ]
    for rule in rules():
        if rule.variants or any(_of(rule, backend) for backend in backends):
            cells = " | ".join(cell(rule, backend, numbers) for backend in backends)
            lines.append(f"| {rule.id} | {rule.title} | {cells} |")
    return "\n".join(lines)


def cell(rule: Rule, backend: Backend, numbers: Mapping[Deviation, int]) -> str:
    """Say what a backend does about a rule.

    Examples
    --------
    >>> from attnspec import find_rule
    >>> from attnspec.backends import load
    >>> from attnspec.conformance.meta.dialects import cell
    >>> cell(find_rule("MASK-6"), load("numpy-portable"), {})
    'holds'
    """
    theirs = _of(rule, backend)
    if rule.id in backend.dialect:
        said = f"`{backend.dialect[rule.id]}`"
    elif any(deviation.is_general for deviation in theirs):
        said = "deviates"
    else:
        said = "holds" if theirs or is_offered(rule, backend) else ""
    if not theirs:
        return said
    listed = ", ".join(str(numbers[deviation]) for deviation in theirs)
    return f"{said} ({listed})" if said == "deviates" else f"{said} but for ({listed})"


def is_offered(rule: Rule, backend: Backend) -> bool:
    """Whether a backend can be asked about a rule: whether it takes the call of any of its golden vectors."""
    return any(_takes(backend, rule, case) for case in cases() if rule.id in case.rules)


def notes(backends: Sequence[Backend]) -> str:
    """Write what the deviations of the table are, each with the backends that share it and what shows it."""
    lines = ["| | rule | what happens instead | where | shown by |", "| --- | --- | --- | --- | --- |"]
    for deviation, number in _numbers(backends).items():
        where = ", ".join(backend.name for backend in backends if deviation in backend.deviations)
        if deviation.dtypes:
            where += f"; {', '.join(deviation.dtypes)}"
        shown = deviation.source
        if not shown.startswith("https://"):
            shown = f"[{shown}](../backends/findings/{shown}.py)"
        lines.append(f"| {number} | {deviation.rules[0]} | {deviation.reason} | {where} | {shown} |")
    return "\n".join(lines)


def native() -> list[Backend]:
    """Load every backend that declares something: those that run the portable source have nothing to."""
    return [backend for backend in map(load, NAMES) if backend.dialect or backend.deviations]


def replaced(text: str, generated: str) -> str:
    """Put a generated part between its marks.

    Raises
    ------
    ValueError
        Where the marks are not there, once each.

    Examples
    --------
    >>> from attnspec.conformance.meta.dialects import BEGIN, END, replaced
    >>> replaced(f"before {BEGIN} old {END} after", "new").split("->")[1].split("<!")[0].strip()
    'new'
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"dialects: expected {BEGIN} and {END} once each")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{generated}\n{END}{rest.partition(END)[2]}"


def _numbers(backends: Sequence[Backend]) -> dict[Deviation, int]:
    """Give the deviations numbers, in the order of their rules."""
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
    """Give the values the depth of the keys: some libraries take no other, and rarely is a rule about it."""
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
        path.write_text(replaced(path.read_text(encoding="utf-8"), generated), encoding="utf-8")


if __name__ == "__main__":
    main()
