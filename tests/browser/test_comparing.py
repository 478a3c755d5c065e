"""The page that compares two runs, in a real browser."""

from dataclasses import replace

import pytest
from html_results import HOSTILE, every_rule, go, verdict, verdicts, write_run

from attnspec import levels, rules
from attnspec.conformance.render.html.folder import read_columns

playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")


def test_two_versions_are_compared(page, folder):
    go(page, folder, "compare.html#left=mine-f-1.0-2026-01-05&right=mine-f-1.1-2026-02-05")
    assert page.eval_on_selector_all("#comparison tr[id]", "rows => rows.map(row => row.id)") == ["MASK-4"]
    text = page.inner_text("#comparison #MASK-4")
    assert "fail" in text
    assert "pass" in text
    page.click("#comparison #MASK-4 summary")
    assert "masking-c-float32: fail \u2192 pass" in page.inner_text("#comparison #MASK-4")
    assert "1 case of the 7 that both runs judged has another verdict" in page.inner_text("#count")
    page.locator("#comparison #MASK-4 button").first.click()
    page.wait_for_selector("#detail:not([hidden])")
    assert "output[2, 0]" in page.inner_text("#detail")


def _drop(page, path):
    """Drop a file on the page, as from a file manager."""
    page.evaluate(
        """([name, text]) => {
            const data = new DataTransfer();
            data.items.add(new File([text], name));
            document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
        }""",
        [path.name, path.read_text(encoding="utf-8")],
    )


def test_a_dropped_file_is_read_in_the_browser(page, folder, tmp_path):
    judged = [one for one in verdicts("mine:f") if one.status != "deviation"]
    judged.append(verdict("mine:f", "masking-d", "MASK-6", "fail", reason=HOSTILE))
    path = write_run(tmp_path / "own.jsonl", version="3.0", judged=judged)
    go(page, folder, "compare.html")
    _drop(page, path)
    page.wait_for_selector("#comparison table")
    assert "own.jsonl: mine:f 3.0" in page.inner_text("#comparison thead")
    page.click("#comparison #MASK-6 summary")
    assert "masking-d-float32: deviation \u2192 fail" in page.inner_text("#comparison #MASK-6")
    page.locator("#comparison #MASK-6 button").nth(1).click()
    page.wait_for_selector("#detail:not([hidden])")
    assert HOSTILE in page.inner_text("#detail")
    assert page.locator("img").count() == 0
    assert page.evaluate("location.hash") == "#left=mine-f-1.1-2026-02-05"


def _chosen(page):
    return page.eval_on_selector_all(
        "#chosen select", "all => all.map(one => one.selectedOptions[0].textContent)"
    )


def test_a_file_takes_the_side_that_is_free(page, folder, tmp_path):
    own = write_run(tmp_path / "own.jsonl", "own:f", "7")
    other = write_run(tmp_path / "other.jsonl", "other:f", "8", verdicts("other:f")[1:])
    go(page, folder, "compare.html")
    _drop(page, own)
    playwright.expect(page.locator("#count")).to_contain_text("Choose the second run")
    assert _chosen(page) == ["own.jsonl: own:f 7", "choose a run"]
    assert page.evaluate("document.querySelector('[type=file]').files[0].name") == "own.jsonl"
    page.select_option('[name="right"]', "good-f-2.0-2026-02-07")
    playwright.expect(page.locator("#comparison thead").first).to_contain_text("good:f")
    assert _chosen(page) == ["own.jsonl: own:f 7", "good:f 2.0, 2026-02-07"]
    go(page, folder, "compare.html#left=good-f-2.0-2026-02-07")
    _drop(page, own)
    page.wait_for_selector("#comparison thead")
    assert _chosen(page) == ["good:f 2.0, 2026-02-07", "own.jsonl: own:f 7"]
    go(page, folder, "compare.html")
    _drop(page, own)
    playwright.expect(page.locator("#count")).to_contain_text("Choose the second run")
    _drop(page, other)
    playwright.expect(page.locator("#count")).to_contain_text("another verdict")
    assert _chosen(page) == ["own.jsonl: own:f 7", "other.jsonl: other:f 8"]
    assert page.evaluate("document.querySelector('[type=file]').files[0].name") == "other.jsonl"


def test_what_only_one_run_judged_is_folded(page, folder, tmp_path):
    judged = [
        verdict("mine:f", "masking-b", "MASK-1", "deviation", variant="x", declared=("MASK-1",)),
        verdict("mine:f", "masking-c", "MASK-4", "fail"),
        verdict("mine:f", "masking-e", "MASK-13", "unsupported"),
    ]
    path = write_run(tmp_path / "part.jsonl", version="3.0", judged=judged, part="quick")
    go(page, folder, "compare.html")
    _drop(page, path)
    page.wait_for_selector("#comparison table")
    rows = "rows => rows.map(row => row.querySelector('th').textContent.split(' ')[0])"
    first = page.locator("#comparison table").first.locator("tbody tr")
    # A failure of one of the runs is before a deviation.
    assert first.evaluate_all(rows) == ["MASK-4", "MASK-1"]
    assert page.inner_text("#count").startswith("2 cases of the 2 that both runs judged have another verdict")
    assert "5 cases are in one of the runs only" in page.inner_text("#count")
    rest = page.locator("#comparison .rest")
    assert not rest.locator("table").is_visible()
    assert rest.locator("#MASK-13").count() == 1
    rest.locator("summary").first.focus()
    page.keyboard.press("Enter")
    playwright.expect(rest.locator("#MASK-13")).to_be_visible()
    page.wait_for_function("location.hash.includes('rest=1')")


def test_runs_that_agree_say_so(page, folder, tmp_path):
    path = write_run(tmp_path / "part.jsonl", "good:f", judged=every_rule("good:f"), part="quick")
    go(page, folder, "compare.html#rest=1")
    _drop(page, path)
    playwright.expect(page.locator("#comparison")).to_contain_text("No case that both runs judged")
    assert page.locator(".rest table").is_visible()


def test_a_wrong_file_leaves_no_old_comparison(page, folder, tmp_path):
    path = tmp_path / "wrong.jsonl"
    path.write_text("hello\n", encoding="utf-8")
    go(page, folder, "compare.html#left=mine-f-1.0-2026-01-05&right=mine-f-1.1-2026-02-05")
    assert page.locator("#comparison tr[id]").count() == 1
    _drop(page, path)
    playwright.expect(page.locator("#count")).to_contain_text("wrong.jsonl is no file of results")
    assert page.inner_text("#comparison") == ""
    assert _chosen(page) == ["choose a run", "choose a run"]
    assert page.evaluate("location.hash") == ""


def test_a_chosen_file_has_the_letters_that_the_command_line_gives_it(page, folder, tmp_path):
    mixed = every_rule("own:f")
    # Each verdict is on two rules, because its status decides what it says of the second.
    for number, status in enumerate(("fail", "error", "deviation", "should not met", "unsupported", "pass")):
        mixed += [
            replace(verdict("own:f", f"more-{number}-{rule.id}", rule.id, status), rules=(rule.id, other.id))
            for rule, other in zip(rules()[number::7], rules()[number + 3 :: 7], strict=False)
        ]
    for name, judged in (
        ("mixed", mixed),
        ("kinds", verdicts("own:f")),
        ("whole", every_rule("own:f")),
        ("two", mixed[len(rules()) :]),
    ):
        path = write_run(tmp_path / f"{name}.jsonl", "own:f", judged=judged)
        (column,) = read_columns([path])
        go(page, folder, "compare.html")
        page.set_input_files('input[type="file"]', path)
        playwright.expect(page.locator("#count")).to_contain_text(f"{name}.jsonl")
        page.check('[name="every"]')
        playwright.expect(page.locator("#comparison tr[id]")).to_have_count(len(rules()))
        letters = page.eval_on_selector_all(
            "#comparison tbody td", "cells => cells.map(cell => cell.className.split(' ')[1])"
        )
        expected = [column.letter_of_level(one.name) for one in levels()]
        assert letters == expected + [column.letters[one.id] for one in rules()], name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello\n", "line 1: this is no line of results"),
        ('{"verdict": {}}\n', "line 1: expected a header"),
        ('{"header": {"schema": 2}}\n', "line 1: expected schema 3, got 2"),
        ("", "expected a header in the first line, got no whole line"),
    ],
)
def test_a_wrong_file_is_named(page, folder, tmp_path, text, said):
    path = tmp_path / "wrong.jsonl"
    path.write_text(text, encoding="utf-8")
    go(page, folder, "compare.html")
    _drop(page, path)
    playwright.expect(page.locator("#count")).to_contain_text(f"wrong.jsonl is no file of results: {said}")
