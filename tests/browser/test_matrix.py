"""The matrix and the pages of backends in a real browser.

``ATTNSPEC_AXE`` may name axe.min.js of axe-core; without it the test of accessibility is skipped.
"""

import json
import os
from pathlib import Path

import pytest
from html_results import HOSTILE, every_rule, go, verdict, write_run

from attnspec import levels, rules
from attnspec.conformance.render.html import write
from attnspec.conformance.render.html.marks import MARKS


def shown_rules(page):
    return page.eval_on_selector_all("#matrix tbody tr[id]", "rows => rows.map(row => row.id)")


def test_every_page_opens_without_an_error(page, folder):
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    assert len(pages) == 10
    for name in pages:
        go(page, folder, name)
        assert page.title().endswith("attnspec")
        assert page.locator("h1").count() == 1


def test_the_matrix_has_a_cell_for_each_rule_and_level(page, folder):
    go(page, folder, "index.html")
    assert shown_rules(page) == [rule.id for rule in rules()]
    assert page.locator("#matrix td").count() == 3 * (len(rules()) + len(levels()) + 1)
    kept = page.locator("#matrix tr.summary td").all_inner_texts()
    assert sorted(kept) == ["1 of 6", "2 of 6", f"{len(rules())} of {len(rules())}"]
    cell = page.locator("#MASK-4 td").nth(0)
    assert cell.get_attribute("aria-label") in {
        "good:f 2.0, MASK-4: pass, 1 cases",
        f"{HOSTILE} {HOSTILE}, MASK-4: fail, 1 of 1 cases",
        "mine:f 1.1, MASK-4: pass, 1 cases",
    }


def test_a_deviation_says_how_much_and_what(browser, page, folder, tmp_path):
    go(page, folder, "index.html#q=MASK-6&library=mine:f")
    cell = page.locator("#MASK-6 td")
    assert cell.inner_text() == "\u2260 1 of 1 cases: uniform"
    assert cell.get_attribute("aria-label").endswith("MASK-6: deviation, 1 of 1 cases: uniform")
    paths = [
        write_run(tmp_path / f"m{number}-2026-01-01.jsonl", f"m{number}:f", judged=judged)
        for number in range(6)
        for judged in (
            [verdict(f"m{number}:f", "a", "MASK-6", "deviation", variant="nan")]
            + [verdict(f"m{number}:f", f"b{one}", "MASK-6") for one in range(number)],
        )
    ]
    write(paths, tmp_path / "out")
    go(page, tmp_path / "out", "index.html#q=MASK-6")
    shown = [text.split() for text in page.locator("#MASK-6 td").all_inner_texts()]
    assert shown == [["\u2260", share] for share in ("100%", "50%", "33%", "25%", "20%", "17%")]


def test_a_part_of_the_suite_opens_with_what_fails(page, tmp_path):
    write([write_run(tmp_path / "part.jsonl", part="quick")], tmp_path / "out")
    go(page, tmp_path / "out", "index.html")
    assert shown_rules(page)[:2] == ["MASK-4", "ERR-1"]
    assert len(shown_rules(page)) == len(set(shown_rules(page))) == len(rules())
    assert page.locator("#matrix tbody").first.inner_text().startswith("Rules with a failure")
    assert page.locator("[data-level]").count() == 0
    page.focus("[data-levels]")
    page.keyboard.press("Enter")
    assert page.locator("[data-level]").count() == len(levels())
    assert page.evaluate("location.hash") == "#levels=1"
    assert page.locator("[data-level=core]").get_attribute("aria-label").endswith("core: not determined")
    page.locator("#MASK-4 td").click()
    page.wait_for_selector("#detail:not([hidden])")
    assert page.locator("#MASK-4 td.shown-cell").count() == 1
    assert page.locator("#MASK-4 td").evaluate("cell => getComputedStyle(cell).display") == "table-cell"
    panel, cell = page.locator("#detail").bounding_box(), page.locator("#MASK-4 td").bounding_box()
    assert cell["x"] + cell["width"] <= panel["x"]
    assert "MUST" in page.inner_text("#detail .sentence")
    page.click("#detail h2 a")
    page.wait_for_url("**/rules.html#MASK-4")
    assert page.locator("#MASK-4").is_visible()


def test_older_versions_can_be_shown(page, folder):
    go(page, folder, "index.html#all=1")
    assert page.locator("#matrix thead th").count() == 1 + 4


@pytest.mark.parametrize(
    ("address", "some", "none"),
    [
        ("q=MASK-6", "MASK-6", "MASK-4"),
        ("q=nothing%20to%20attend", "MASK-6", "MASK-4"),
        ("chapter=masking", "MASK-6", "ERR-1"),
        ("level=windowed", "MASK-8", "MASK-11"),
        ("verdict=d", "MASK-6", "MASK-4"),
        ("verdict=u", "MASK-8", "MASK-6"),
        ("only=failing", "MASK-4", "MASK-6"),
        ("only=failing&library=good%3Af", None, "MASK-4"),
        ("differ=1", "MASK-13", "MASK-1"),
        ("verdict=f&all=1&library=mine:f", "MASK-4", "MASK-6"),
    ],
)
def test_a_view_is_in_its_address(page, folder, address, some, none):
    go(page, folder, f"index.html#{address}")
    found = shown_rules(page)
    assert some is None or some in found
    assert none not in found
    if some is None:
        assert "nothing fits" in page.inner_text("#count")


def test_filters_change_the_address_and_the_address_gives_the_same_view(page, folder):
    go(page, folder, "index.html")
    page.fill('[name="q"]', "masked")
    page.fill('[name="q"]', "")
    page.select_option('[name="chapter"]', "masking")
    page.check('[name="differ"]')
    page.click(".libraries summary")
    page.uncheck(f'[name="library"][value={json.dumps(HOSTILE)}]')
    found, address = shown_rules(page), page.evaluate("location.hash")
    assert set(found) == {"MASK-6", "MASK-13"}
    assert address == "#chapter=masking&library=good:f,mine:f&differ=1"
    go(page, folder, f"index.html{address}")
    assert shown_rules(page) == found
    assert page.is_checked('[name="differ"]')
    page.click('button[type="reset"]')
    assert len(shown_rules(page)) == len(rules())
    assert page.evaluate("location.hash") == ""


def test_a_rule_alone_is_an_address(page, folder):
    go(page, folder, "index.html#MASK-6")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('tr').id") == "MASK-6"
    place = page.locator("#MASK-6").bounding_box()
    assert -1 < place["y"] < 900  # positions are fractions of a pixel


def test_a_cell_is_opened_read_and_closed_with_the_keyboard(page, folder):
    go(page, folder, "index.html#all=1&library=mine:f")
    page.focus('[name="differ"]')
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('#matrix td') !== null"):
            break
    row = "document.activeElement.closest('tr').id"
    for _ in range(200):
        page.keyboard.press("ArrowDown")
        if page.evaluate(row) == "MASK-4":
            break
    assert page.evaluate("document.activeElement.textContent") == "\u2717 1 of 1 cases"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "\u2713"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail:not([hidden])")
    text = page.inner_text("#detail")
    for part in (
        "MASK-4",
        "output[2, 0]",
        "1.5",
        "0.25",
        "0.5",
        "2.5 times the allowed error",
        "from attnspec.backends import load",
    ):
        assert part in text
    assert "attnspec check mine:f --case masking-c-float32" in text
    assert page.evaluate("document.activeElement.id") == "detail"
    assert "cell=MASK-4:mine-f-1.0-2026-01-05" in page.evaluate("location.hash")
    page.keyboard.press("Escape")
    assert page.is_hidden("#detail")
    assert page.evaluate(row) == "MASK-4"
    assert "cell=" not in page.evaluate("location.hash")


def test_an_open_cell_is_an_address(page, folder):
    go(page, folder, "index.html#cell=MASK-6:mine-f-1.0-2026-01-05")
    page.wait_for_selector("#detail:not([hidden])")
    assert "uniform" in page.inner_text("#detail")
    go(page, folder, "index.html#cell=level.masked:mine%3Af")
    page.wait_for_selector("#detail:not([hidden])")
    assert "not reached" in page.inner_text("#detail")
    assert "MASK-6" in page.inner_text("#detail")
    go(page, folder, "index.html#cell=MASK-2:mine:f")
    page.wait_for_selector("#detail:not([hidden])")
    assert "no verdict on this rule" in page.inner_text("#detail")


def test_text_from_outside_is_text(page, folder):
    go(page, folder, "index.html")
    assert HOSTILE in page.inner_text("#matrix thead")
    assert page.locator("img").count() == 0
    page.locator("#ERR-1 td").nth(0).click()
    page.wait_for_selector("#detail:not([hidden])")
    assert HOSTILE in page.inner_text("#detail")
    assert page.locator("img").count() == 0


def test_a_narrow_screen_has_no_page_that_is_wider(page, folder):
    page.set_viewport_size({"width": 390, "height": 800})
    for path in sorted(folder.rglob("*.html")):
        go(page, folder, path.relative_to(folder).as_posix())
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, (path.name, wide)


def test_a_narrow_matrix_shows_whole_names_and_many_columns(browser, tmp_path):
    paths = [
        write_run(tmp_path / f"m{number}-2026-01-01.jsonl", f"m{number}:f", judged=every_rule(f"m{number}:f"))
        for number in range(31)
    ]
    write(paths, tmp_path / "out")
    whole = """rows => rows.every(row => {
        const head = row.querySelector("th");
        return head.scrollWidth <= head.clientWidth + 1;
    })"""
    shown = """cells => cells.filter(cell =>
        cell.getBoundingClientRect().right <= document.getElementById("matrix").getBoundingClientRect().right
    ).length"""
    for width, least in ((400, 11), (1280, 31)):
        found = browser.new_page(viewport={"width": width, "height": 800})
        go(found, tmp_path / "out", "index.html#library=all")
        levels_ = found.locator("#matrix tr:has([data-level])")
        assert levels_.count() == len(levels())
        assert levels_.evaluate_all(whole), width
        assert found.locator("#MASK-6 td").evaluate_all(shown) >= least, width
        found.close()


def test_a_narrow_matrix_begins_with_one_function_in_words(browser, tmp_path):
    paths = [
        write_run(tmp_path / f"m{number}-2026-01-01.jsonl", f"m{number}:f", judged=every_rule(f"m{number}:f"))
        for number in range(6)
    ]
    write(paths, tmp_path / "out")
    found = browser.new_page(viewport={"width": 390, "height": 800})
    go(found, tmp_path / "out", "index.html")
    assert found.locator("#MASK-6 td").count() == 1
    assert found.locator("#MASK-6 .title").is_visible()
    found.select_option("#function select", "m3:f")
    assert found.evaluate("location.hash") == "#library=m3:f"
    assert "m3:f" in found.locator("#matrix thead").inner_text()
    found.click("#MASK-6 td")
    cell, panel = (found.locator(name).bounding_box() for name in ("#MASK-6 td", "#detail"))
    assert cell["y"] >= 0
    assert cell["y"] + cell["height"] <= panel["y"]
    found.close()


def test_signs_are_explained_before_the_matrix(page, folder):
    go(page, folder, "index.html")
    signs = page.locator(".signs")
    page.click(".signs-of summary")
    assert signs.bounding_box()["y"] < page.locator("#matrix").bounding_box()["y"]
    assert "breaks the rule in a declared way" in signs.inner_text()
    assert signs.locator("li").count() == len(MARKS)


def test_without_scripts_the_backends_and_tables_remain(browser, folder):
    context = browser.new_context(java_script_enabled=False)
    found = context.new_page()
    found.goto(f"file://{folder}/index.html")
    assert found.locator("ul.backends a").count() == 3
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, folder, scheme):
    axe = Path(os.environ.get("ATTNSPEC_AXE", ""))
    if not axe.is_file():
        pytest.skip("needs axe-core: npm install axe-core, and ATTNSPEC_AXE=node_modules/axe-core/axe.min.js")
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    found = context.new_page()
    addresses = [
        "index.html",
        "index.html#cell=MASK-4:mine-f-1.0-2026-01-05&all=1",
        "compare.html#left=mine-f-1.0-2026-01-05&right=mine-f-1.1-2026-02-05&every=1",
        "mine-f.html",
        "runs/mine-f-1.0-2026-01-05.html",
    ]
    for address in addresses:
        go(found, folder, address)
        found.add_script_tag(path=axe)
        violations = found.evaluate("axe.run().then(result => result.violations)")
        serious = [
            (one["id"], node["html"][:160], node["failureSummary"][-200:])
            for one in violations
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:2]
        ]
        assert serious == [], address
    context.close()
