"""Declarations apply to a range of releases, and the page of dialects states them."""

from dataclasses import replace

import pytest

from attnspec import find_rule
from attnspec.backends import Deviation, load
from attnspec.backends.backend import for_release
from attnspec.backends.deviation import holds
from attnspec.backends.outcome import Bound
from attnspec.conformance.results import Header, Results, Subject
from attnspec.conformance.verdict import Verdict
from attnspec.errors import SpecError
from tools import dialects as tool
from tools.dialects import PAGE, declared_cell, replace_part, results_table

BEGIN, END = (f"<!-- {word}: declarations, by tools.dialects -->" for word in ("begin", "end"))
RULE = find_rule("MASK-6")


@pytest.mark.exhaustive
def test_the_page_is_what_the_declarations_say():
    written = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip()
    generated = tool.page(tool.native_backends()).strip()
    # All but the line of versions: another release that behaves the same changes nothing.
    assert written.splitlines()[1:] == generated.splitlines()[1:], "run python -m tools.dialects --write"


def test_every_native_backend_is_described():
    prose = PAGE.read_text(encoding="utf-8").split(BEGIN)[0]
    for backend in tool.native_backends():
        assert backend.name in prose


def test_a_cell_tells_a_variant_a_deviation_what_holds_and_what_is_not_offered():
    backend = load("numpy-portable")
    declaring = replace(backend, dialect={"MASK-6": "nan"})
    source = "https://example.org/1"
    deviation = Deviation(("ERR-6",), "any scale is taken", source, Bound(), dtypes=("float16",))
    deviating = replace(declaring, deviations=(deviation,))
    general = replace(deviation, source="https://example.org/2", dtypes=())
    assert declared_cell(find_rule("MASK-6"), backend, {}) == "holds"
    assert declared_cell(find_rule("MASK-6"), declaring, {}) == "`nan`"
    assert declared_cell(find_rule("ERR-6"), deviating, {deviation: 3}) == "holds but for (3)"
    everywhere = replace(backend, deviations=(general,))
    assert declared_cell(find_rule("ERR-6"), everywhere, {general: 4}) == "deviates (4)"
    assert declared_cell(find_rule("ERR-6"), declaring, {}) == "holds"
    assert declared_cell(find_rule("SOFT-6"), load("torch-sdpa"), {}) == ""
    # Its vectors have values of other depths.
    assert declared_cell(find_rule("HEAD-1"), load("jax-nn"), {}) == "holds"
    said = tool.deviation_table([deviating])
    assert "| 1 | [ERR-6] | any scale is taken | numpy-portable; float16 | https://example.org/1 |" in said


def verdict(status, rule="", **more):
    return Verdict("b", f"case-{status}-{rule}", "g", ("MASK-6", "SOFT-1"), status, rule=rule, **more)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([], ""),
        ([verdict("unsupported")], ""),
        ([verdict("pass"), verdict("unsupported")], "holds"),
        ([verdict("pass"), verdict("deviation", "MASK-6", variant="nan")], "`nan`"),
        ([verdict("deviation", "MASK-6", declared=("a/b",)), verdict("pass")], "deviates"),
        ([verdict("deviation", "SOFT-1", declared=("a/b",)), verdict("pass")], "holds"),  # of another rule
        ([verdict("fail", "MASK-6"), verdict("pass")], "fails"),
        ([verdict("should not met", "MASK-6"), verdict("pass")], "not met"),
    ],
)
def test_a_cell_of_results_says_what_the_verdicts_show(verdicts, said):
    assert tool.judged_cell(RULE, verdicts) == said


def results(part="whole"):
    shown = (verdict("pass"), verdict("deviation", "MASK-6", variant="nan"), verdict("error", "SOFT-1"))
    return Results(
        (Subject("b?dtype=float32", "lib", "1"), Subject("b", "lib", "1")), shown, (Header("1", part),)
    )


def test_the_table_has_the_rules_that_differ():
    lines = results_table(results()).splitlines()
    assert lines[0] == "| rule | | b | b |"
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["[MASK-6]", "[SOFT-1]"]
    assert lines[2].endswith("|  | `nan` |")
    assert lines[3].endswith("|  | fails |")
    assert "| b, 1 not declared | lib 1 | 1 | 1 | 0 | 0 |" in tool.headlines(results())


def test_a_run_that_is_not_whole_makes_no_table():
    with pytest.raises(SpecError, match="expected whole runs, got quick"):
        results_table(results("quick"))


def test_the_page_is_written_between_its_marks_alone():
    assert replace_part(f"a{BEGIN}b{END}c", "declarations", "new\n") == f"a{BEGIN}\n\nnew\n\n{END}c"
    for part in ("declarations", "results"):
        assert "\n\nnew\n\n" in replace_part(PAGE.read_text(encoding="utf-8"), part, "new")
    with pytest.raises(SpecError, match="once each"):
        replace_part("no marks", "declarations", "new")


ANY_SCALE = Deviation(("ERR-6",), "any scale is taken", "https://example.org/1", Bound())
DEPTH = Deviation(("ERR-5",), "a depth of 0 is taken", "https://example.org/2", Bound())


def declaring(version, **declared):
    numpy = load("numpy-portable")
    return replace(numpy, array_library=replace(numpy.array_library, version=version), **declared)


@pytest.mark.parametrize(
    ("versions", "version", "in_range"),
    [
        ("", "2.14.1", True),
        (">=2.13,<2.14", "2.13.0+cpu", True),
        (">=2.13,<2.14", "2.13.1", True),
        (">=2.13,<2.14", "2.14.0.dev20260801", False),
        (">=2.13,<2.14", "2.14.1", False),
        (">=2.13", "2.14.0rc1", True),
        (">=2.13", "nightly", False),
        ("", "nightly", True),
    ],
)
def test_a_release_in_a_range(versions, version, in_range):
    assert holds(versions, version) == in_range


def test_declarations_hold_in_their_range_alone():
    backend = declaring("2.13.0+cpu", dialect={"MASK-6": "nan"}, deviations=(DEPTH,), versions=">=2.13,<2.14")
    assert for_release(backend) is backend
    backend = declaring("2.14.1", dialect={"MASK-6": "nan"}, deviations=(DEPTH,), versions=">=2.13,<2.14")
    left = for_release(backend)
    assert (left.dialect, left.deviations) == ({}, ())
    assert left.notes == ("no deviation is declared for numpy 2.14.1 (declarations are for >=2.13,<2.14)",)
    assert for_release(declaring("2.14.1", versions=">=1,<2")).notes == ()
    wide = replace(ANY_SCALE, versions=">=2.10")
    left = for_release(declaring("2.14.1", deviations=(DEPTH, wide), versions=">=2.13,<2.14"))
    assert left.deviations == (wide,)
    note = "not every deviation is declared for numpy 2.14.1 (declarations are for >=2.13,<2.14)"
    assert left.notes == (note,)
    mended = replace(DEPTH, versions="<2.14")
    left = for_release(declaring("2.14.1", dialect={"MASK-6": "nan"}, deviations=(mended,)))
    assert (left.dialect, left.deviations) == ({"MASK-6": "nan"}, ())


def test_an_adapter_of_another_release_is_loaded_without_what_is_declared(monkeypatch):
    from attnspec.backends.library import torch as file

    assert load("torch-sdpa").deviations
    monkeypatch.setattr(file, "LIBRARY", replace(file.LIBRARY, version="2.99.0"))
    later = load("torch-sdpa")
    assert (later.version, later.dialect, later.deviations) == ("2.99.0", {}, ())
    assert later.notes == ("no deviation is declared for torch 2.99.0 (declarations are for >=2.13,<2.14)",)
    assert load("torch-portable").notes == ()


def test_each_adapter_says_for_which_releases_it_speaks():
    from attnspec.backends import NAMES

    for backend in map(load, NAMES):
        assert bool(backend.versions) == bool(backend.dialect or backend.deviations)
