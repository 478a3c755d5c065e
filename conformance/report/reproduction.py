"""Reproductions: a few lines of Python that show a failure without the suite."""

import zlib
from base64 import b85decode, b85encode
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.deviations import current_test
from attnspec.conformance.judge.dtypes import is_mixed

#: Longer arrays than this are packed, and longer ones than that are left to a run of the test alone.
_MOST, _MOST_PACKED = 400, 4096


def of_case(backend: Backend, case: Case, dtype: str) -> str:
    """Reproduce a golden vector."""
    arguments = "case.arguments" if is_mixed(case) else f'in_dtype(case.arguments, "{dtype}")'
    lines = [
        "from attnspec import find_case",
        "from attnspec.backends import load",
        "from attnspec.conformance.judge.judge import in_dtype, observe",
        f'case, backend = find_case("{case.id}"), load("{backend.name}")',
        f"got = observe(backend, case.operation, {arguments})",
    ]
    if case.misuse is None:
        lines.append("print({name: array - case.expected[name] for name, array in got.items()})")
    return _indented(lines)


def of_arguments(
    backend: Backend,
    operation: str,
    arguments: Mapping[str, Any],
    output: str = "",
    expected: NDArray[Any] | None = None,
) -> str:
    """Reproduce a call with generated arguments; nothing is expected of one that must raise."""
    arrays = [thing for thing in (*arguments.values(), expected) if isinstance(thing, np.ndarray)]
    longest = max((array.size for array in arrays), default=0)
    if longest > _MOST_PACKED:
        test = current_test().partition("[")[0]
        return _indented(
            [f"# arrays of {longest} numbers; in a shell:", f"# attnspec check {backend.name} -k {test}"]
        )
    lines = [
        "import numpy as np",
        "from attnspec.backends import load",
        "from attnspec.conformance.judge.judge import observe",
        *(["from attnspec.conformance.report.reproduction import unpacked"] if longest > _MOST else []),
        f'got = observe(load("{backend.name}"), "{operation}", {{',
        *(f'    "{name}": {_literal(thing)},' for name, thing in arguments.items()),
        "})",
        "print(got)" if expected is None else f'print(got["{output}"] - {_literal(expected)})',
    ]
    return _indented(lines)


def unpacked(packed: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Read an array that was too long to be written out.

    Parameters
    ----------
    packed : str
        Its bytes in rows, by zlib and base 85.
    dtype : str
    shape : tuple of int

    Examples
    --------
    >>> from attnspec.conformance.report.reproduction import unpacked
    >>> unpacked("c${NkU|;|M00aO5", "int8", (2, 2)).tolist()
    [[0, 0], [0, 0]]
    """
    return np.frombuffer(zlib.decompress(b85decode(packed)), dtype).reshape(shape)


def _literal(thing: Any) -> str:
    if isinstance(thing, float) and not np.isfinite(thing):
        return f'float("{thing}")'
    if not isinstance(thing, np.ndarray):
        return repr(thing)
    if thing.size > _MOST:
        packed = b85encode(zlib.compress(np.ascontiguousarray(thing).tobytes())).decode()
        return f'unpacked({packed!r}, "{thing.dtype}", {thing.shape})'
    if thing.size > 1 and (thing == thing.flat[0]).all() and np.isfinite(thing.flat[0]):
        return f'np.full({thing.shape}, {thing.flat[0].item()!r}, "{thing.dtype}")'
    rows = repr(thing.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
    if thing.size:
        return f'np.array({rows}, "{thing.dtype}")'
    return f'np.zeros({thing.shape}, "{thing.dtype}")'


def _indented(lines: list[str]) -> str:
    return "reproduce:\n" + "\n".join(f"    {line}" for line in lines)
