"""Writes a few lines of Python that reproduce a failure from its verdict."""

import json
import shlex

from attnspec.backends.names import (
    LIBRARY_NAMES,
    PROGRAM,
    UNTRUSTED,
    entry_points_of_packages,
    environment_of,
    library_of,
    split_options,
)
from attnspec.conformance.traits import ARBITRARY, RELATED, SIZED_GROUPS
from attnspec.conformance.verdict import LISTS, Difference, Verdict


def reproduction(verdict: Verdict, seed: int | None = None) -> str:
    """Write the lines that reproduce a verdict.

    They print the wrong element and the expected one, or the result of a call that must be rejected.
    A call that raises or ends the process does so again. A relation is judged again. A function that was
    judged in its own process and that no name leads to, such as a closure, can be judged only there.
    """
    if not verdict.case:
        return ""
    if not (verdict.alone or verdict.after or _is_judged_again(verdict)):
        return "# The call passes alone, and after each other call that was tried: repeat the whole run."
    if not _has_place(verdict.backend):
        why = f"# No import leads to {verdict.backend}, so this runs where it is defined, with the same keys:"
        return "\n".join(
            [why, "from attnspec.conformance import check", f"print({_check_call(verdict, seed)})"]
        )
    backend = f"load({_quote(verdict.backend)})"
    case = f"find({_quote(verdict.case)}{'' if seed is None else f', seed={seed}'})"
    imports, lines = _program(verdict, backend, case)
    return "\n".join(["from attnspec.backends import load", *imports, *lines])


def _program(verdict: Verdict, backend: str, case: str) -> tuple[list[str], list[str]]:
    """Return the imports and the lines after them."""
    seen = ["from attnspec.conformance import find, observe"]
    compared = ["from attnspec.conformance import expected, find, observe"]
    difference = verdict.difference
    if _is_judged_again(verdict):
        # Imported from the module, because the folder of the judge has the same name.
        judging = [
            "from attnspec.conformance import find",
            "from attnspec.conformance.judge.judge import judge",
            "from attnspec.conformance.render.text import verdict_line",
        ]
        return judging, [f"print(verdict_line(judge({backend}, {case})))"]
    if difference is None:
        return seen, [f"print(observe({backend}, {case}))"]
    if ARBITRARY in verdict.traits and difference.element:
        return _row_program(difference, backend, case)
    both = f"backend, case = {backend}, {case}"
    if verdict.after:
        earlier = case.replace(_quote(verdict.case), _quote(verdict.after))
        both += f"\njudge(backend, {earlier})  # without this earlier call, the result is right"
        for imports in (seen, compared):
            imports.append("from attnspec.conformance.judge.judge import judge")
    calls = "observe(backend, case)", "expected(case, backend)"  # in its dialect
    got, expected = (f"{of}{_select(difference)}" for of in calls)
    if difference.kind == "dtype":  # expected values are float64
        return seen, [both, f"print({got})"]
    if not verdict.repeatable:
        return compared, [both, "for _ in range(10):", f"    print({got}, {expected})"]
    return compared, [both, f"print({got}, {expected})"]


def _row_program(difference: Difference, backend: str, case: str) -> tuple[list[str], list[str]]:
    """Compute one row of the exact values, because all of them would take too long."""
    imports = [
        "from attnspec.conformance import find, observe",
        "from attnspec.conformance.sizes.chosen import exact_row",
    ]
    row = difference.element if difference.output == "lse" else difference.element[:-1]
    rest = difference.element[len(row) :]
    exact = f'exact_row(case.arguments, {row}, backend.dialect)["{difference.output}"]{list(rest) or ""}'
    both = f"backend, case = {backend}, {case}"
    return imports, [both, f"print(observe(backend, case){_select(difference)}, {exact})"]


def _is_judged_again(verdict: Verdict) -> bool:
    """Whether one call cannot show it, because it is about several calls, the inputs or an error."""
    # A relation reports differences between calls. A message that must name an argument is not a result.
    several = RELATED in verdict.traits or (verdict.difference is not None and verdict.reason != "")
    bits = verdict.difference is not None and verdict.difference.kind == "bits"
    valid = verdict.raised is not None and verdict.raised.valid
    return several or bits or valid or verdict.rule in ("NUM-4", "ERR-12")


def _has_place(backend: str) -> bool:
    """Whether `load` may know a backend by its name. It knows functions by a module or a file."""
    return (
        any(mark in backend for mark in ":/.")
        or library_of(backend) in LIBRARY_NAMES
        or backend in entry_points_of_packages()
    )


def _check_call(verdict: Verdict, seed: int | None) -> str:
    """Write the call of `attnspec.conformance.check` that judges a case again."""
    name = verdict.backend if verdict.backend.isidentifier() else "function"
    drawn = "" if seed is None else f", seed={seed}"
    return f"check({name}, cases=[{_quote(verdict.case)}]{drawn})"


def check_command(verdict: Verdict, seed: int | None = None) -> str:
    """Write the command that judges the case of a verdict again, in a process of its own."""
    if not _has_place(verdict.backend):
        return _check_call(verdict, seed)
    drawn = [] if seed is None else ["--seed", str(seed)]
    sized = ["--sizes"] if verdict.group.startswith(SIZED_GROUPS) else []
    backend, distrusted = verdict.backend.removeprefix(UNTRUSTED), verdict.backend.startswith(UNTRUSTED)
    name = [backend, *(["--untrusted"] if distrusted else [])]
    variables: list[str] = []
    if backend.startswith(PROGRAM):
        command, options = split_options(backend.removeprefix(PROGRAM))
        limit = options.get("call_limit")
        name = [*name[1:], "--program", command, *(["--call-limit", limit] if limit else [])]
        name += ["--ranks", options["ranks"]] if "ranks" in options else []
        dtypes = filter(None, options.get("dtype", "").split(","))
        name += [word for dtype in dtypes for word in ("--dtype", dtype)]
        variables = [f"{key}={value}" for key, value in environment_of(verdict.backend).items()]
    words = [*(["env", *variables] if variables else []), "attnspec", "check", *name, *sized, *drawn]
    return shlex.join([*words, *(["--case", verdict.after] if verdict.after else []), "--case", verdict.case])


def dump_command(verdict: Verdict, seed: int | None = None) -> str:
    """Write the command that dumps the call of a program, for a debugger. Empty for other backends."""
    if not verdict.case or not verdict.backend.startswith(PROGRAM):
        return ""
    command = split_options(verdict.backend.removeprefix(PROGRAM))[0]
    drawn = [] if seed is None else ["--seed", str(seed)]
    return shlex.join(["attnspec", "dump", "--case", verdict.case, *drawn, "--program", command, "FOLDER"])


def _select(difference: Difference) -> str:
    output = f'["{difference.output}"]'
    if difference.kind in ("shape", "dtype"):
        return f"{output}.{difference.kind}"
    # The numbers of a list are counts, which no call returns: the whole list and its counts are shown.
    shown = difference.element[:-1] if difference.output in LISTS else difference.element
    element = ", ".join(map(str, shown))
    return f"{output}[{element}]" if element else output


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
