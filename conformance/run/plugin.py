"""The pytest plugin: ``--backend``, the suite as pytest items, verdicts and the table.

It is read at every start of pytest wherever attnspec is installed, so it declares its
options and registers anything at all only when the suite is what is run, and imports
what is heavy only then.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from attnspec.conformance.run import SUITE


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> None:
    """Declare the options only for the suite, because other tests may have their own ``--backend``."""
    if not any(_names_suite(word) for word in args):
        return
    early_config.stash[_ours] = True
    group = parser.getgroup("attnspec", "attention conformance")
    group.addoption(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="what to judge: a name, a library or module:function; may be repeated",
    )
    group.addoption("--quick", action="store_true", help="a fixed part of the suite that touches every rule")
    group.addoption(
        "--rule", action="append", default=[], metavar="ID", help="only cases that bear on this rule"
    )
    group.addoption("--case", action="append", default=[], metavar="ID", help="only this case")
    group.addoption("--level", metavar="LEVEL", help="only what bears on the rules of this level")
    group.addoption("--require", metavar="WHAT", help="values (the default), refusals or a level")
    group.addoption("--seed", type=int, metavar="N", help="other generated cases (default: a fixed choice)")
    group.addoption("--time-limit", type=float, default=300.0, metavar="SECONDS", help="for one case (300)")


def pytest_configure(config: pytest.Config) -> None:
    """Register the session that keeps the state of a run."""
    if config.stash.get(_ours, False):
        from attnspec.conformance.pytest_session import Session

        config.pluginmanager.register(Session(config), "attnspec-session")


_ours = pytest.StashKey[bool]()


def _names_suite(word: str) -> bool:
    if word == "attnspec.conformance":
        return True
    path = Path(word)
    return not word.startswith("-") and path.exists() and path.absolute() == SUITE
