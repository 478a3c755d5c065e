"""The marks of the tests: which are exhaustive; and the pages and folders that several of them use."""

import sys
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by the marks
def pytest_collection_modifyitems(items):
    sampled = {}
    for item in items:
        if item.get_closest_marker("sample"):
            sampled.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for same in sampled.values():
        number = same[0].get_closest_marker("sample").args[0]
        kept = {index * (len(same) - 1) // max(number - 1, 1) for index in range(number)}
        for index, item in enumerate(same):
            if index not in kept:
                item.add_marker(pytest.mark.exhaustive)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def here_beside_tests(here, monkeypatch):
    """An empty folder, which is the current one, from which the modules of the tests are found."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])
    return here


@pytest.fixture
def in_tests(monkeypatch):
    """The folder of the tests, in which modules of a user's own are looked for."""
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def answers():
    """Makes a function that is not trusted, in a process of its own, which ends with the test."""
    from attnspec.backends.untrusted.remote import Remote

    made = []

    def make(place, **options):
        made.append(Remote("own", place, "", "", Path.cwd(), **options))
        return made[-1]

    yield make
    for remote in made:
        remote.close()


@pytest.fixture(scope="session")
def results_folder(tmp_path_factory):
    """Pages of small results, without a site around them."""
    from html_results import write_all

    from attnspec.conformance.render.html import write

    folder = tmp_path_factory.mktemp("results")
    write(write_all(folder), folder / "pages")
    return folder / "pages"


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site of a few small results."""
    from built_site import Site, stored

    folder = tmp_path_factory.mktemp("site")
    return Site(folder, [*stored(folder)])


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """A page of each kind of the site, as Sphinx makes it."""
    from built_site import build_sample

    return build_sample(tmp_path_factory.mktemp("sample"))
