"""Implementations of attention that are wrong in one named way, and correct ones. They test the suite."""

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from attnspec import rules
from attnspec.conformance.gallery import edges
from attnspec.conformance.gallery.entry import KINDS, NEEDS, PLACE, Entry, entries_of

__all__ = ["KINDS", "NEEDS", "PLACE", "Entry", "correct_entries", "entry", "wrong_entries"]


#: The modules with entries, in the order in which those of a rule are listed.
_WRONG = """
    notation projection scores masking windows empty_rows softmax tiles splits logarithms heads
    caching packing paging quantization positions sparsity selection latent stacks sharding
    sharding_of_arrays serving dropout gradients gradients_of_options gradients_of_forms
    gradients_of_shards gradients_numerics gradients_memory numerics layouts invariance errors
    options_of_forms captured
""".split()  # noqa: SIM905 - a list of 36 literals would have a line for each
_CORRECT = ("correct", "correct_tiles", "correct_gradients", "correct_shards")


@cache
def wrong_entries() -> tuple[Entry, ...]:
    """List the entries that break a rule, in the order of the rules in the standard."""
    place = {rule.id: number for number, rule in enumerate(rules())}
    modules = (*map(_module, _WRONG), *edges.MODULES)
    return tuple(sorted(entries_of(*modules), key=lambda entry: place[entry.rule]))


@cache
def correct_entries() -> tuple[Entry, ...]:
    """List the entries that break no rule."""
    return entries_of(*map(_module, _CORRECT))


def _module(name: str) -> ModuleType:
    return import_module(f"{PLACE}.{name}")


def entry(name: str) -> Entry:
    """Find an entry by its name.

    Raises
    ------
    KeyError
        If there is none.

    Examples
    --------
    >>> from attnspec.conformance.gallery import entry
    >>> entry("key_heads_tiled").rule
    'HEAD-1'
    """
    return _by_name()[name]


@cache
def _by_name() -> dict[str, Entry]:
    return {entry.name: entry for entry in (*wrong_entries(), *correct_entries())}


def __getattr__(name: str) -> Any:
    """Load an entry's backend by ``attnspec.conformance.gallery:NAME``."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return entry(name).backend()
    except KeyError:
        raise AttributeError(name) from None
