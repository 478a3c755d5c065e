"""The pictures of the standard agree with the reference and are readable."""

import re
from xml.etree import ElementTree as ET

import pytest

from attnspec import find_rule
from attnspec.operations import OPERATIONS
from tools import pictures as module
from tools.pictures import FILL, FOLDER, INK, MASKS, STEPS, main, pictures

DRAWN = pictures()
SVG = "{http://www.w3.org/2000/svg}"


def test_the_stored_pictures_are_those_that_are_drawn(tmp_path, monkeypatch):
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == DRAWN
    monkeypatch.setattr(module, "FOLDER", tmp_path / "pictures")
    main()
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == set(DRAWN)


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_small_and_described_and_its_letters_stand_inside(name):
    assert len(DRAWN[name].encode()) < 20_000
    root = ET.fromstring(DRAWN[name])
    assert len(root.findtext(f"{SVG}title")) > 10
    assert len(root.findtext(f"{SVG}desc")) > 100
    # At 7.5 units a letter, which is wide for letters of 12.
    root = ET.fromstring(DRAWN[name])
    before = {"start": 0, "middle": 0.5, "end": 1}
    for one in root.iter(f"{SVG}text"):
        wide = 7.5 * len(one.text)
        left = float(one.get("x")) - before[one.get("text-anchor")] * wide
        assert left >= 0, one.text
        assert left + wide <= float(root.get("width")), one.text
        assert 10 <= float(one.get("y")) <= float(root.get("height")), one.text


@pytest.mark.parametrize("name", MASKS)
def test_a_grid_has_a_square_for_each_allowed_key(name):
    squares = re.findall(r'class="f" d="([^"]*)"', DRAWN[f"{name}.svg"])
    assert [path.count("M") for path in squares] == [one.allowed.sum() for one in MASKS[name].panels]


def test_the_last_grid_allows_what_all_others_do():
    *sources, every = MASKS["together"].panels
    assert (every.allowed == (sum(one.allowed.astype(int) for one in sources) == len(sources))).all()
    assert not every.allowed[-1].any()


def test_the_steps_of_the_operator_are_those_of_the_standard():
    operation = OPERATIONS["attention"]
    taken = {name for step in STEPS for line in step.inputs for name in re.findall(r"\w+", line)}
    assert taken == {name for name in operation.arguments if not name.startswith("return_")}
    assert {step.output for step in STEPS} - {""} == set(operation.outputs)
    for step in STEPS:
        for rule in step.rules.split(", "):
            assert find_rule(rule)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(x * weight for x, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
@pytest.mark.parametrize("colour", [INK, FILL])
def test_the_colours_are_read_on_a_light_page_and_on_a_dark_one(colour, page):
    light, dark = sorted((luminance(colour), luminance(page)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) > 4
