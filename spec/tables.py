"""Generates the tables of letters and arguments, and the calls, of the chapters.

``python -m attnspec.tables FILES`` writes them into pages, between a line
``<!-- arguments of OPERATIONS -->``, ``<!-- call of OPERATION -->``, ``<!-- letters -->`` or
``<!-- operations -->`` and the line ``<!-- end -->``.
"""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import wrap

from attnspec.errors import SpecError
from attnspec.operations import LETTERS, OPERATIONS, Argument, Operation, Output, Shape
from attnspec.operations.letters import BATCH, Letter
from attnspec.operations.operation import primal
from attnspec.sizes import turned

_PART = re.compile(r"(?P<head><!-- (?P<what>[a-z_, ]+) -->\n).*?(?P<foot><!-- end -->)", re.DOTALL)

#: The kind of an array, by its numbers.
_KINDS = {
    "floating": "floating-point",
    "lse": "floating-point of an lse",
    "boolean": "booleans",
    "integer": "integers",
}
_FORMS = {"integers": "integer or integers", "flag": "True or False", "window": "pair of integers or None"}


def letters() -> str:
    """Make the table of letters."""
    rows = ((f"`{name}`", letter.meaning, _of_zero(letter)) for name, letter in LETTERS.items())
    return _table(("letter", "meaning", "may be 0"), rows)


def _of_zero(letter: Letter) -> str:
    if letter.may_be_empty:
        return "yes"
    rule = letter.empty or letter.zero
    return f"see [{rule}]" if rule else "no result is defined"


def arguments(*operations: str) -> str:
    """Make the table of all arguments and outputs of some operations."""
    rows: list[tuple[str, ...]] = []
    for name in operations:
        if len(operations) > 1:
            rows.append((f"**{name}**", *[""] * 6))
        shared = _shared(name)
        own = (argument for argument in OPERATIONS[name].arguments.values() if argument.name not in shared)
        rows += [_of_argument(argument) for argument in own]
        if shared:
            rows.append(("the other options of `attention`", *[""] * 5, "[STACK-2]"))
        rows += [_of_argument(argument) for argument in OPERATIONS[name].forward]
        rows += [_of_output(output, OPERATIONS[name]) for output in OPERATIONS[name].results]
    return _table(("argument", "kind", "shape", "meaning", "role", "default", "rule"), rows)


def _shared(name: str) -> set[str]:
    """Return the options that a form, or its gradients, has as `attention` has them, but for the axes."""
    form = OPERATIONS[name]
    if not OPERATIONS[primal(name)].layers:
        return set()
    known = OPERATIONS["attention"].arguments
    return {
        name for name in form.options if name in known and form.arguments[name].meaning == known[name].meaning
    }


def operations() -> str:
    """List every operation with its arrays, its other arguments and its outputs."""
    rows = (
        (f"`{name}`", _names(form.arrays), _beside(name), _names(form.outputs))
        for name, form in OPERATIONS.items()
        if not form.stacked  # their arguments follow from their names
    )
    return _table(("operation", "arrays", "arguments besides", "outputs"), rows)


def _beside(operation: str) -> str:
    shared = _shared(operation)
    own = _names(name for name in OPERATIONS[operation].offers if name not in shared)
    return f"{own}, and the other options of `attention`" if shared else own


def call(operation: str) -> str:
    """Write the call of an operation, with all of its arguments. `options` stands for those of attention."""
    form = OPERATIONS[operation]
    shared = _shared(operation)
    options = (form.arguments[name] for name in form.options if name not in shared)
    given = ", ".join(
        argument.name if argument.required else f"{argument.name}={argument.default!r}"
        for argument in options
    )
    given += ", **options" if shared else ""
    lines = wrap(given, 60 - len(operation)) or [""]
    indent = " " * (4 + len(operation) + 1)
    first = f"    {operation}({', '.join(form.arrays)}{', *,' if given else ''}"
    return "\n".join([first, *(indent + line for line in lines)]).rstrip() + ")"


def written(page: str) -> str:
    r"""Rewrite the tables of a page."""

    def table(part: re.Match[str]) -> str:
        what, _, names = part["what"].partition(" of ")
        makers: dict[str, Callable[..., str]] = {
            "letters": letters,
            "arguments": arguments,
            "operations": operations,
            "call": call,
        }
        asked = tuple(names.split(", ")) if names else ()
        if what not in makers or not set(asked) <= set(OPERATIONS):
            raise SpecError(
                f"table: expected letters, operations, arguments of ... or call of ..., got {part['what']!r}"
            )
        return f"{part['head']}{makers[what](*asked)}\n{part['foot']}"

    return _PART.sub(table, page)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _of_argument(argument: Argument) -> tuple[str, ...]:
    shape = shape_of(argument)
    return (
        f"`{argument.name}`",
        kind_of(argument),
        f"broadcasts{' by blocks' if argument.by_blocks else ''} to {shape}"
        if argument.broadcasts
        else shape,
        argument.meaning,
        ", ".join(argument.role),
        "" if argument.required else f"`{argument.default!r}`",
        f"[{argument.rule}]",
    )


def _numbers_of(output: Output, of: Argument | None) -> str:
    """Say what numbers an output has. The gradient of an array has its dtype (GRAD-2)."""
    if of and of.kind == "array" and output.numbers == "lse":
        return f"floating-point of `{of.name}`"
    return "int32 or int64" if output.lists else _KINDS[output.numbers]


def _of_output(output: Output, form: Operation) -> tuple[str, ...]:
    asked = f"with `{output.option or output.of}`" if output.option or output.of in form.options else "always"
    of = form.arguments.get(output.of)
    return (
        f"gives `{output.name}`",
        _numbers_of(output, of),
        f"that of `{of.name}`" if of and of.broadcasts else shape_of(output),
        asked,
        "",
        "",
        f"[{output.rule}]",
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _shape(shape: Shape) -> str:
    return f"`({', '.join(map(_axis, shape))})`"


def _axis(letter: str) -> str:
    if letter == BATCH:
        return letter
    whole, quotient, part = letter.partition("/")
    if quotient:  # half of an even number needs no rounding
        return f"{whole} / {part}" if part.isdigit() else f"ceil({whole} / {part})"
    return " * ".join(letter.split("*"))


#: The names of conventions in tables.
_CONVENTIONS = {"column": "columns", "linear": "linear"}


def shape_of(entry: Argument | Output) -> str:
    """Return a shape, and the shapes of other conventions if they differ."""
    if not entry.shape:
        return ""
    plain, other = _shape(entry.shape), _shape(turned(entry.shape))
    words = " and ".join(_CONVENTIONS[word] for word in entry.turns)
    return f"{plain}, {words} {other}" if words and plain != other else plain


def kind_of(argument: Argument) -> str:
    """Return the kind of an argument, and after a comma the range of its numbers."""
    if argument.kind == "word":
        return " or ".join(f"`{word}`" for word in argument.words)
    plain = _KINDS[argument.numbers] if argument.kind == "array" else _FORMS.get(argument.kind, argument.kind)
    if argument.sums:
        return f"{plain}, from 0, that add up to {_axis(argument.sums)}"
    return plain if argument.bounds is None or argument.kind == "window" else f"{plain}, {argument.bounds}"


def main(paths: list[str]) -> None:
    """Rewrite the tables of some files."""
    for path in map(Path, paths):
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
