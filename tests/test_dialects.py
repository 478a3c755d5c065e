"""The page of dialects agrees with the declarations of the backends."""

from dataclasses import replace
from pathlib import Path

import pytest

from attnspec import find_rule
from attnspec.backends import Deviation, load
from tools.dialects import BEGIN, END, cell, native, notes, page, replaced

PAGE = Path(__file__).parents[1] / "spec" / "dialects.md"


@pytest.mark.exhaustive
def test_the_page_is_what_the_declarations_say():
    written = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip()
    generated = page(native()).strip()
    # All but the line of versions: another release that behaves the same changes nothing.
    assert written.splitlines()[1:] == generated.splitlines()[1:], (
        "run python -m tools.dialects --write spec/dialects.md"
    )


def test_every_native_backend_is_described():
    prose = PAGE.read_text(encoding="utf-8").split(BEGIN)[0]
    for backend in native():
        assert backend.name in prose


def test_a_cell_tells_a_variant_a_deviation_what_holds_and_what_is_not_offered():
    backend = load("numpy-portable")
    declaring = replace(backend, dialect={"MASK-6": "nan"})
    deviation = Deviation(("ERR-6",), "any scale is taken", "https://example.org/1", dtypes=("float16",))
    deviating = replace(declaring, deviations=(deviation,))
    general = replace(deviation, source="https://example.org/2", dtypes=())
    assert cell(find_rule("MASK-6"), backend, {}) == "holds"
    assert cell(find_rule("MASK-6"), declaring, {}) == "`nan`"
    assert cell(find_rule("ERR-6"), deviating, {deviation: 3}) == "holds but for (3)"
    assert cell(find_rule("ERR-6"), replace(backend, deviations=(general,)), {general: 4}) == "deviates (4)"
    assert cell(find_rule("ERR-6"), declaring, {}) == "holds"
    assert cell(find_rule("SOFT-6"), load("torch-sdpa"), {}) == ""
    assert (
        cell(find_rule("HEAD-1"), load("jax-nn"), {}) == "holds"
    )  # though its vectors have values of other depths
    said = notes([deviating])
    assert "| 1 | [ERR-6] | any scale is taken | numpy-portable; float16 | https://example.org/1 |" in said


def test_the_page_is_written_between_its_marks_alone():
    assert replaced(f"a{BEGIN}b{END}c", "new") == f"a{BEGIN}\n\nnew\n{END}c"
    with pytest.raises(ValueError, match="once each"):
        replaced("no marks", "new")
