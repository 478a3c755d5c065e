"""Opens a page of results at an address."""


def go(page, folder, address):
    page.goto("about:blank")  # the same page with another anchor is not loaded again
    page.goto(f"file://{folder}/{address}")
    if address.startswith(("index", "compare")):
        page.wait_for_selector("body[data-ready]")
