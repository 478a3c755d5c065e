"""What the reference decides about a drawn call, such as whether an argument acts in it.

Calls are drawn until one serves its group. To decide this took two thirds of the time of making all cases, so
the decisions of the fixed suite are stored, each by a digest of its call. One about another call is computed.
"""

from collections.abc import Callable
from functools import cache, wraps
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np

P = ParamSpec("P")

PATH = Path(__file__).parent / "decisions.npy"
#: The decisions of this process, by their digests.
_DECIDED: dict[int, bool] = {}


def decision(compute: Callable[P, bool]) -> Callable[P, bool]:
    """Store what a function decides about a call."""

    @wraps(compute)
    def run(*args: P.args, **options: P.kwargs) -> bool:
        return decide(lambda: compute(*args, **options), compute.__name__, args, options)

    return run


def decide(compute: Callable[[], bool], *about: Any) -> bool:
    """Look up a decision by what it is about, and compute it if it is not stored."""
    digest = blake2b(b";".join(_parts(about)), digest_size=8)
    # The lowest bit of a stored number is the decision.
    key = int.from_bytes(digest.digest(), "little") & ~1
    if key not in _DECIDED:
        known = _stored().get(key)
        _DECIDED[key] = bool(compute()) if known is None else known
    return _DECIDED[key]


def write(path: Path, *, only_check: bool) -> bool:
    """Store the decisions of this process, which has made each case. Return whether the file changes."""
    numbers = np.array(sorted(key | decided for key, decided in _DECIDED.items()), np.uint64)
    changed = not path.exists() or not np.array_equal(np.load(path), numbers)
    if changed and not only_check:
        np.save(path, numbers)
    return changed


def forget() -> None:
    """Let this process compute each decision."""
    _DECIDED.clear()
    _stored().clear()


@cache
def _stored() -> dict[int, bool]:
    numbers = np.load(PATH).tolist() if PATH.exists() else []
    return {number & ~1: bool(number & 1) for number in numbers}


def _parts(about: Any) -> list[bytes]:
    """Return what a decision is about as bytes, with the type and the shape of each array."""
    if isinstance(about, np.ndarray):
        return [f"{about.dtype.str}{about.dtype.char}{about.shape}".encode(), about.tobytes()]
    if isinstance(about, list | tuple):
        return [b"(", *chain.from_iterable(map(_parts, about)), b")"]
    if hasattr(about, "items"):
        return [part for name in sorted(about) for part in (name.encode(), *_parts(about[name]))]
    return [repr(about).encode()]
