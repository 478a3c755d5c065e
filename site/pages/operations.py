"""The page of each operation, with its arguments and outputs."""

from attnspec import OPERATIONS, Operation
from attnspec.operations import Argument, Output
from attnspec.operations.aliases import ALIASES, OF_COMPANIONS
from attnspec.tables import call, kind_of, shape_of
from pages.known import Known
from pages.page import (
    ORPHAN,
    Name,
    Page,
    Part,
    code,
    crumbs,
    escaped,
    inline,
    link,
    plural,
    raw,
    rule_link,
    table,
)


def operations(known: Known) -> Part:
    """Return the pages of all operations, and their list."""
    pages = [_index()]
    names = []
    for name, form in OPERATIONS.items():
        pages.append(Page(f"operations/{name}", _page(name, form, known)))
        names.append(Name("operation", name, f"operations/{name}.html", "operation"))
        for one in (*form.arguments.values(), *form.forward):
            also = _also(one.name)
            said = f"argument of {name}: {one.meaning}" + (f"; also called {', '.join(also)}" if also else "")
            names.append(
                Name("argument", f"{name}.{one.name}", f"operations/{name}.html#{one.name}", said, also)
            )
        names += [
            Name("argument", f"{name}.{one.name}", f"operations/{name}.html#{one.name}", f"output of {name}")
            for one in form.results
        ]
    return Part(tuple(pages), tuple(names))


def _page(name: str, form: Operation, known: Known) -> str:
    vectors = [case for case in known.cases if case.operation == name]
    rows = [_of_argument(one) for one in form.arguments.values()]
    rows += [_of_argument(one, "of the forward pass") for one in form.forward]
    outputs = [_of_output(one, name) for one in form.results]
    parts = [
        ORPHAN + raw(crumbs(("../index.html", "attnspec"), ("index.html", "Operations"))),
        f"# {name}\n",
        f"```python\n{call(name).strip()}\n```\n",
        "Letters of shapes are explained in [notation](../spec/notation.md#letters).\n",
        "## Arguments\n",
        raw(
            table(
                ("argument", "kind and shape", "meaning", "default", "rules"),
                rows,
                label=f"Arguments of {name}",
            )
        ),
        "## Results\n",
        raw(table(("output", "kind and shape", "returned", "rule"), outputs, label=f"Outputs of {name}")),
    ]
    if vectors:
        rows = [
            (
                link(f"../rules/{case.rules[0]}.html#{case.id}", code(case.id)),
                escaped(case.title),
                ", ".join(map(rule_link, case.rules)),
            )
            for case in vectors
        ]
        inner = table(("vector", "", "rules"), rows, label=f"Golden vectors of {name}")
        parts.append("## Golden vectors\n")
        parts.append(
            raw(
                f"<details><summary>{plural(len(vectors), 'golden vector')} of {name}</summary>"
                f"{inner}</details>"
            )
        )
    return "\n".join(parts)


def _of_argument(one: Argument, note: str = "") -> tuple[str, ...]:
    shape = shape_of(one)
    whole = f"broadcasts to {shape}" if one.broadcasts else shape
    kind = ", ".join(part for part in (inline(kind_of(one)), inline(whole)) if part)
    meaning = inline(one.meaning)
    if note:
        meaning += f" ({note})"
    if also := _also(one.name):
        meaning += f'<br><span class="about">elsewhere {", ".join(map(code, also))}</span>'
    if one.needs:
        meaning += f'<br><span class="about">only with {", ".join(map(code, one.needs))}</span>'
    if one.excludes:
        meaning += f'<br><span class="about">not with {", ".join(map(code, one.excludes))}</span>'
    refused = [rule for rule in dict.fromkeys(one.refusals.values()) if rule != one.rule]
    cited = rule_link(one.rule) + (f"; refused by {', '.join(map(rule_link, refused))}" if refused else "")
    default = "required" if one.required else code(repr(one.default))
    return (f"{{{one.name}}}", code(one.name), kind, meaning, default, cited)


def _of_output(one: Output, operation: str) -> tuple[str, ...]:
    asked = one.option or one.of
    returned = f"with {code(asked)}" if asked else "always"
    kind = "floating-point, float32 or wider" if one.numbers == "lse" else "floating-point"
    # The heading of the page has the name of the operation as its anchor.
    own = () if one.name == operation else (f"{{{one.name}}}",)
    return (*own, code(one.name), f"{kind}, {inline(shape_of(one))}", returned, rule_link(one.rule))


def _also(name: str) -> tuple[str, ...]:
    return (*ALIASES.get(name, ()), *OF_COMPANIONS.get(name, ()))


def _index() -> Page:
    rows = [
        (
            link(f"{name}.html", code(name)),
            ", ".join(link(f"{name}.html#{one}", code(one)) for one in form.arrays),
            ", ".join(link(f"{name}.html#{one}", code(one)) for one in form.offers),
            ", ".join(map(code, form.outputs)),
        )
        for name, form in OPERATIONS.items()
    ]
    text = "# Operations\n\nThe operator `attention` and its companions, with their arguments.\n\n"
    return Page(
        "operations/index",
        text + raw(table(("operation", "arrays", "arguments", "outputs"), rows, label="Operations")),
    )
