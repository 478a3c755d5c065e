"""Pages of results in a real browser. They are opened where Chromium and Playwright are installed."""

import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def folder(results_folder):
    return results_folder


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a browser: none of {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser, folder):
    """A page that fails the test if it logs an error or asks for anything but a file."""
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    found = context.new_page()
    problems = []
    found.on("console", lambda one: problems.append(one.text) if one.type in ("error", "warning") else None)
    found.on("pageerror", lambda error: problems.append(str(error)))
    context.on("request", lambda one: problems.append(one.url) if not one.url.startswith("file:") else None)
    yield found
    context.close()
    assert problems == []
