"""Takes the picture of the matrix, for the README and for previews: ``python site/photograph.py``.

It needs a built site, the packages of the group `browser`, and Chromium.
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Open the chapter masking in the matrix, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, nargs="?", default=HERE.parent / "build" / "site" / "html")
    site = parser.parse_args().site.resolve()
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1600, "height": 1400})
        page.goto(f"{site.as_uri()}/results/index.html#chapter=masking")
        page.locator("#matrix td").first.wait_for()
        corner = page.evaluate("document.getElementById('matrix').getBoundingClientRect().toJSON()")
        area = {"x": corner["x"], "y": corner["y"], "width": 1280, "height": 612}
        page.screenshot(path=HERE / "pictures" / "matrix.png", full_page=True, clip=area)
        browser.close()


if __name__ == "__main__":
    main()
