"""The site in a real browser, from a server under a path of its own, as a host of pages has it."""

import functools
import os
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PAGES = (
    "index.html", "symptoms.html", "try.html", "search.html?q=causal%20off%20by%20one", "rules/MASK-6.html",
    "results/index.html", "results/compare.html", "results/torch-sdpa.html", "libraries/torch.html",
    "spec/masking.html", "404.html",
)  # fmt: skip


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(sample, tmp_path_factory):
    """The address of the sample, which a local server has under a path."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(sample, folder / "attnspec")
    # This page names the address at which the site is said to be.
    page = folder / "attnspec" / "404.html"
    page.write_text(page.read_text(encoding="utf-8").replace("https://example.org", ""), encoding="utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/attnspec"
    server.shutdown()
    server.server_close()


def opened(browser, address, **options):
    """A page, and what goes wrong in it: errors, answers that are no pages, and requests to other hosts."""
    context = browser.new_context(**options)
    page, problems = context.new_page(), []
    page.on("console", lambda each: problems.append(each.text) if each.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("response", lambda each: problems.append(each.url) if each.status >= 400 else None)
    context.on("request", lambda each: None if each.url.startswith(address) else problems.append(each.url))
    return page, problems


def test_every_kind_of_page_opens_under_a_path_and_asks_no_other_host(browser, address):
    page, problems = opened(browser, address)
    for name in PAGES:
        page.goto(f"{address}/{name}", wait_until="networkidle")
        assert page.locator("h1").count() == 1, name
        assert problems == [], name
    page.context.close()


def test_a_symptom_is_found_from_the_front_page(browser, address):
    page, problems = opened(browser, address)
    page.goto(f"{address}/index.html")
    page.fill("#find", "causal off by one kv cache")
    first = page.locator(".suggested:visible li").first
    first.wait_for()
    assert "off by one" in first.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=*")
    page.click(".hits li a >> nth=0")
    page.wait_for_url("**/symptoms.html#the-causal-mask-is-off-by-one*")
    assert problems == []
    page.context.close()


def test_an_id_of_no_rule_is_said_to_be_none(browser, address):
    page, problems = opened(browser, address)
    page.goto(f"{address}/search.html?q=MASK-99")
    page.locator(".hits li").first.wait_for()
    assert page.inner_text(".hits h2") == "There is no rule MASK-99. Names like it"
    assert problems == []
    page.context.close()


def test_a_row_is_judged_and_a_mistake_is_named(browser, address):
    page, problems = opened(browser, address)
    page.goto(f"{address}/try.html")
    assert "Off by more than the allowed error of bfloat16" in page.inner_text("#try-result")
    page.fill('[name="output"]', "tensor([0.4180, 1.6016])")
    page.click("#try button")
    assert "Within the allowed error" in page.inner_text("#try-result .verdict")
    page.select_option('[name="dtype"]', "float32")
    page.fill('[name="output"]', "tensor([0.4178, 1.6043])")
    page.click("#try button")
    assert "Too few digits to tell" in page.inner_text("#try-result .verdict")
    page.select_option('[name="dtype"]', "bfloat16")
    page.fill('[name="output"]', "tensor([0.4180, 1.6016])")
    page.fill('[name="mask"]', "True True False True")
    page.click("#try button")
    assert "the mask has no effect: MASK-1" in page.inner_text("#try-result")
    page.fill('[name="values"]', "1 2")
    page.click("#try button")
    assert page.inner_text("#try-result") == "values: expected 4 rows as in keys, got 1"
    assert problems == []
    page.context.close()


def test_a_row_is_read_as_libraries_print_it(browser, address):
    page, problems = opened(browser, address, viewport={"width": 390, "height": 800})
    page.goto(f"{address}/try.html")
    page.fill('[name="output"]', "tensor([0.4180, 1.6016], device='cuda:0', dtype=torch.bfloat16)")
    page.fill(
        '[name="keys"]',
        "[[0.5, 1.0, -1.0, 0.75], [-0.25, 0.5, 2.0, 1.25], [1, -2, 0.5, -0.5], [0.75, 0.25, 0.125, 1]]",
    )
    page.fill(
        '[name="values"]',
        "tensor([[ 1.0,\n  2.0],\n [-1.5, 0.5], [3., -2.],\n [0.25, 4.]], dtype=torch.bfloat16)",
    )
    page.click("#try button")
    assert "Within the allowed error" in page.inner_text("#try-result .verdict")
    for cell in page.locator('#try-result [data-label="allowed error"]:visible').all():
        box = cell.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
    page.fill('[name="output"]', "[nan, inf]")
    page.click("#try button")
    assert "although its scores are finite: NUM-11" in page.inner_text("#try-result")
    page.fill('[name="mask"]', "tensor([False, False, False, False])")
    page.click("#try button")
    assert "without an allowed key does not give 0: MASK-6" in page.inner_text("#try-result")
    assert problems == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
def test_axe_finds_nothing_serious_in_the_site(browser, address, scheme, width):
    axe = Path(os.environ.get("ATTNSPEC_AXE", ""))
    if not axe.is_file():
        pytest.skip("needs axe-core: npm install axe-core, and ATTNSPEC_AXE=node_modules/axe-core/axe.min.js")
    page, _ = opened(
        browser, address, color_scheme=scheme, bypass_csp=True, viewport={"width": width, "height": 800}
    )
    found = {}
    for name in PAGES:
        page.goto(f"{address}/{name}", wait_until="networkidle")
        page.add_script_tag(path=axe)
        for violation in page.evaluate("axe.run().then(result => result.violations)"):
            if violation["impact"] in ("serious", "critical"):
                found[name, violation["id"]] = [node["html"][:200] for node in violation["nodes"][:2]]
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 1:
            found[name, "wide"] = wide
    assert found == {}
    page.context.close()
