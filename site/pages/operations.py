"""The page of each operation, with its arguments and outputs."""

from typing import Any

from pages.known import Known
from pages.page import Name, Page, Part, make_page

from attnspec import OPERATIONS, Operation
from attnspec.operations import Argument
from attnspec.operations.aliases import ALIASES, COUNTS, OF_COMPANIONS
from attnspec.tables import call, kind_of, shape_of


def operations(known: Known) -> Part:
    """Return the pages of all operations, and their list."""
    pages = [make_page("operations/index", "operations.md", operations=OPERATIONS)]
    names = []
    for name, operation in OPERATIONS.items():
        address = f"operations/{name}.html"
        pages.append(_page(name, operation, known))
        names.append(Name("operation", name, address, "operation"))
        for argument in (*operation.arguments.values(), *operation.forward):
            also = _also(argument.name)
            title = f"argument of {name}: {argument.meaning}"
            title += f"; also called {', '.join(also)}" if also else ""
            place = f"{address}#{argument.name}"
            names.append(Name("argument", f"{name}.{argument.name}", place, title, also))
        names += [
            Name("argument", f"{name}.{output.name}", f"{address}#{output.name}", f"output of {name}")
            for output in operation.results
        ]
    return Part(tuple(pages), tuple(names))


def _page(name: str, operation: Operation, known: Known) -> Page:
    arguments = [_row(argument, forward=False) for argument in operation.arguments.values()]
    arguments += [_row(argument, forward=True) for argument in operation.forward]
    return make_page(
        f"operations/{name}",
        "operation.md",
        name=name,
        call=call(name).strip(),
        arguments=arguments,
        outputs=[(output, shape_of(output)) for output in operation.results],
        vectors=[case for case in known.cases if case.operation == name],
    )


def _row(argument: Argument, *, forward: bool) -> dict[str, Any]:
    shape = shape_of(argument)
    whole = f"broadcasts to {shape}" if argument.broadcasts else shape
    refusals = dict.fromkeys(argument.refusals.values())
    return {
        "argument": argument,
        "forward": forward,
        "kind": [part for part in (kind_of(argument), whole) if part],
        "also": [name for name in _also(argument.name) if name not in COUNTS],
        "counts": [name for name in _also(argument.name) if name in COUNTS],
        "default": "" if argument.required else repr(argument.default),
        "refused": [rule for rule in refusals if rule != argument.rule],
    }


def _also(name: str) -> tuple[str, ...]:
    return (*ALIASES.get(name, ()), *OF_COMPANIONS.get(name, ()))
