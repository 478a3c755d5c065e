"""Operations as data agree with the reference, the rules and the vectors."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import attnspec
from attnspec import OPERATIONS, SpecError, cases, find_rule, reference, tables
from attnspec.conformance.suite.faults import SIZES, fitting, value_for
from attnspec.dtypes import DTYPES, FORMATS, SHORT, numbers_of, numpy_dtype
from attnspec.operations import LETTERS, REQUIRED
from attnspec.operations.letters import BATCH, ONE_MORE, value_of
from attnspec.sizes import misfits, output_shapes, shape_of, sizes, turned

HOME = Path(attnspec.__file__).parent
EVERY = [(operation, one) for operation, form in OPERATIONS.items() for one in form.arguments.values()]
IDS = [f"{operation}-{one.name}" for operation, one in EVERY]
PAGES = [*HOME.glob("*.md"), HOME / "conformance" / "protocol.md"]
PORTABLE = reference.functions()
PROVEN = [case for case in cases() if case.expected]


def parameters(function):
    """What a function takes, less the dtype in which the reference computes."""
    return {name: one for name, one in inspect.signature(function).parameters.items() if name != "dtype"}


def public(operation):
    """The function of the reference, and that of the portable source."""
    return [reference.function(operation), PORTABLE[operation]]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_sources_and_help_have_the_arguments_and_outputs(operation):
    form = OPERATIONS[operation]
    for function in public(operation):
        taken = parameters(function)
        assert tuple(taken) == (*form.arrays, *form.options)
        assert [name for name, one in taken.items() if one.kind is one.KEYWORD_ONLY] == list(form.options)
        for name, one in taken.items():
            default = form.arguments[name].default
            assert (one.default is one.empty) if default is REQUIRED else one.default == default, name
    text, form = inspect.getdoc(reference.function(operation)), OPERATIONS[operation]
    for entry in (*form.arguments.values(), *form.results):
        assert re.search(rf"(?m)^{entry.name} : .*\n    .*\({entry.rule}\)\.$", text), entry.name
    if not form.stacked:
        text = inspect.getdoc(getattr(reference, operation))
        assert text.index("ArgumentError") < text.index(f">>> from attnspec.reference import {operation}")


def test_the_rule_of_two_axes_names_the_operations_that_take_them():
    named = set(re.findall(r"`(\w+)`", find_rule("SHAPE-2").sentence.partition(" arrays ")[0]))
    takes = {operation for operation, form in OPERATIONS.items() if form.headless}
    assert named | {f"{name}_vjp" for name in named} & {*OPERATIONS} == takes


def test_a_call_without_a_required_argument_names_the_operation():
    for function in public("attention"):
        with pytest.raises(TypeError, match=r"^attention\(\): missing a required argument: 'value'$"):
            function(np.ones((1, 1)), np.ones((1, 1)))


def test_every_public_function_of_the_reference_is_an_operation():
    """But for parts of attention, which take the scores or their shape, what makes them all, and stacks."""
    functions = {name for name in reference.__all__ if callable(getattr(reference, name))} - {"ArgumentError"}
    single = {name for name, form in OPERATIONS.items() if not form.stacked}
    assert functions - {"allowed_keys", "function", "functions", "softmax"} == single
    assert set(PORTABLE) == set(OPERATIONS)


def letters_of(axis):
    """``Hq*D`` and ``L/Lb`` have two letters, and ``R/2`` has one."""
    return [factor for factor in re.split("[*/]", axis.removesuffix(ONE_MORE)) if not factor.isdigit()]


@pytest.mark.parametrize(("operation", "argument"), EVERY, ids=IDS)
def test_an_argument_cites_rules_and_letters_that_there_are(operation, argument):
    for rule in (argument.rule, *argument.refusals.values()):
        find_rule(rule)
    factors = {factor for axis in argument.shape if axis != BATCH for factor in letters_of(axis)}
    assert factors | {argument.binds or "L"} <= set(LETTERS)
    assert {*argument.needs, *argument.excludes, *argument.matters_with} <= set(OPERATIONS[operation].options)
    faults = {"dtype", "mixed", "form", "bounds", "entries", "alone", "shape", "axes"}
    assert set(argument.refusals) <= {*faults, *argument.shape}
    assert bool(argument.words) == (argument.kind == "word")
    assert bool(argument.shape) == (argument.kind in {"array", "integers"})
    assert ("alone" in argument.refusals) == bool(argument.needs or argument.excludes)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_output_cites_a_rule_and_is_asked_for_by_an_option(operation):
    form = OPERATIONS[operation]
    gradients = [output for output in form.results if output.of]
    assert [output.name for output in gradients] == [f"d_{output.of}" for output in gradients]
    assert {output.of for output in gradients} <= set(form.arguments)
    others = [output for output in form.results if not output.of]
    others = others if gradients else others[1:]  # the first result is always returned
    asked = [f"return_{output.name}" for output in others]
    assert [output.option for output in others] == asked == list(form.names("asks"))
    for output in form.results:
        find_rule(output.rule)


@pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS)
def test_a_letter_is_used_and_cites_a_rule(letter):
    shapes = [one.shape for form in OPERATIONS.values() for one in (*form.arguments.values(), *form.results)]
    assert letter.name == BATCH or any(letter.name in letters_of(axis) for shape in shapes for axis in shape)
    if letter.empty:
        assert not letter.may_be_empty
        find_rule(letter.empty)


@pytest.mark.parametrize(
    "sized",
    [{"L": 0}, {"S": 0}, {"N": 0}, {"M": 0}, {"C": 0, "N": 0}, {"P": 0, "T": 0}, {"K": 0}, {"T": 0}],
    ids="-".join,
)
def test_what_may_be_empty_is_taken(sized):
    """A table of no pages has to name none, and a cache without room takes nothing."""
    assert all(LETTERS[letter].may_be_empty for letter in sized)
    seen = False
    for operation, form in OPERATIONS.items():
        given = fitting(operation)
        arrays = {one.name: value_for(operation, one, sized) for one in form.positional}
        others = [x for x in form.named if x.required and (x.covers or "W" in x.shape)]
        arrays |= {x.name: value_for(operation, x, sized) for x in others}
        if any(arrays[name].shape != given[name].shape for name in arrays):
            seen = True
            call = given | arrays
            assert misfits(operation, call) == []
            positional = [call.pop(name) for name in form.arrays]
            reference.function(operation)(*positional, **call)
    assert seen


@pytest.mark.parametrize("case", PROVEN, ids=str)
def test_the_arguments_of_a_golden_vector_fit(case):
    assert misfits(case.operation, case.arguments) == []
    found = sizes(case.operation, case.arguments)
    for name, one in OPERATIONS[case.operation].arguments.items():
        x = case.arguments.get(name)
        if isinstance(x, np.ndarray) and not one.broadcasts:
            turns = case.arguments.get("convention") in one.turns
            assert shape_of(turned(one.shape) if turns else one.shape, found) == x.shape
    shapes = output_shapes(case.operation, case.arguments, counted=True)
    assert {name: x.shape for name, x in case.expected.items()} == shapes


@pytest.mark.parametrize(
    ("operation", "changes", "message"),
    [
        ("attention", {"key": np.ones((2, 2, 5, 3))}, "key: expected shape (2, Hkv, S, 4), got (2, 2, 5, 3)"),
        ("attention", {"key": np.ones((2, 5, 4))}, "key: expected shape (2, Hkv, S, 4), got (2, 5, 4)"),
        ("attention", {"mask": np.ones((5, 3), bool)}, "expected a shape that broadcasts to (2, 2, 3, 5)"),
        ("attention", {"dropout_rate": 0.5}, "dropout_rate: got 0.5 without dropout_mask"),
        ("attention", {"key_lengths": 6}, "expected an integer or integers from 0 to S, which is 5"),
        ("attention", {"window": (1,)}, "window: expected two, each None or an integer from 0, got (1,)"),
        ("attention", {"bias": 0.0}, "bias: expected an array, got 0.0"),
        ("append_cache", {"lengths": 4}, "expected an integer or integers from 0 to C - N, which is 3"),
        ("projection", {"convention": "rows"}, "convention: expected row or column or linear, got rows"),
        ("merge_partials", {"lses": np.ones((1, 2, 2, 3), "float16")}, "expected dtype float64, got float16"),
        ("multi_head_attention", {"key_heads": 3}, "key_weight: expected shape (2, 12), got (2, 8)"),
    ],
)
def test_what_does_not_fit_is_named(operation, changes, message):
    problems = misfits(operation, fitting(operation) | changes)
    assert any(message in problem for problem in problems), problems


def test_sizes_of_calls():
    with pytest.raises(SpecError, match=r"shape \(\*B, Hq, L, S\): got no size of L, S"):
        shape_of((BATCH, "Hq", "L", "S"), sizes("rotary", {"features": np.ones((3, 4))}))
    with pytest.raises(SpecError, match="argument key: expected shape"):
        sizes("scores", {"query": np.ones((3, 4)), "key": np.ones((3, 5))})
    assert value_of("Hq*D", {"Hq": 2}) is None
    assert set(SIZES) == set(LETTERS)
    assert [value_of("L/Lb", {"L": size, "Lb": 2}) for size in (0, 1, 2, 3)] == [0, 1, 1, 2]
    assert value_of("L/Lb", {"L": 3}) is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_of_the_data(page):
    """Mended by `python -m attnspec.tables spec/*.md conformance/protocol.md`."""
    assert page.read_text() == tables.written(page.read_text())


def test_every_operation_has_its_table():
    asked = [line for page in HOME.glob("*.md") for line in page.read_text().splitlines()]
    listed = [line[18:-4] for line in asked if line.startswith("<!-- arguments of ")]
    named = sorted(name for line in listed for name in line.split(", "))
    assert named == sorted(name for name, form in OPERATIONS.items() if not form.stacked or name in named)
    with pytest.raises(SpecError, match=r"table: .*, got 'arguments of nothing'"):
        tables.written("<!-- arguments of nothing -->\n<!-- end -->")


@pytest.mark.parametrize("name", DTYPES)
def test_a_format_is_that_of_the_library(name):
    import ml_dtypes

    found, info = FORMATS[name], ml_dtypes.finfo(numpy_dtype(name))
    assert (found.largest, found.normal) == (float(info.max), float(info.smallest_normal))
    assert (2 * found.unit, found.subnormal) == (float(info.eps), float(info.smallest_subnormal))
    assert {found.working, found.lse} <= set(DTYPES)
    assert (name in SHORT) == (found.working != name)
    assert numbers_of(np.ones(1, numpy_dtype(name))) == "floating"


def test_an_option_that_another_operation_takes_over_is_not_older_there():
    for form in OPERATIONS.values():
        for name in form.options:
            first = OPERATIONS[form.reduces].arguments.get(name) if form.reduces else None
            assert first is None or form.arguments[name].since >= first.since, name


def test_each_kind_is_defined_and_each_range_has_a_rule():
    """Kinds are those of the page notation; what follows a comma is a range, which ERR-16 is not about."""
    page = (HOME / "notation.md").read_text(encoding="utf-8")
    table = page.partition("### Kinds")[2].partition("### Roles")[0]
    defined = {*re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)}
    for operation, argument in EVERY:
        kind, _, limits = tables.kind_of(argument).partition(", ")
        assert argument.kind == "word" or kind in defined, f"{operation}: {argument.name}"
        assert not limits or argument.refusals["bounds"] != "ERR-16", f"{operation}: {argument.name}"
