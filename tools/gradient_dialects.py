"""The table of gradients in `spec/dialects.md`: the results of the libraries, from one call for each cell."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from attnspec.backends import Backend, Unsupported
from attnspec.backends.errors import NotDifferentiable
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.expected import exact
from attnspec.conformance.judge.failure import Declined, Failure, Missing, Raised

_VJP = "attention_vjp"
Arguments = Mapping[str, Any]


def gradient_table(backends: Sequence[Backend]) -> str:
    """Write a row for each question about gradients, with a column for each backend.

    Examples
    --------
    >>> from attnspec.backends import load
    >>> from tools.gradient_dialects import gradient_table
    >>> print(gradient_table([load("numpy-portable")]).splitlines()[2])
    | a query whose keys a mask all disallows | 0 |
    """
    lines = [
        f"| gradients with | {' | '.join(backend.name for backend in backends)} |",
        f"| --- |{' --- |' * len(backends)}",
    ]
    lines += [
        f"| {what} | {' | '.join(cell(ask, backend) for backend in backends)} |"
        for what, ask in QUESTIONS.items()
    ]
    return "\n".join(lines)


def cell(ask: Callable[[Backend], str], backend: Backend) -> str:
    """Answer a question about a backend; empty if it does not offer the call, or ``raises``."""
    try:
        return ask(backend)
    except Missing:
        return ""
    except (Raised, Declined):
        return "raises"
    except Unsupported as unsupported:
        return "raises" if isinstance(unsupported, NotDifferentiable) else ""
    except Failure:
        return "none"


def _problem(**options: Any) -> dict[str, Any]:
    """Make a call of two queries and three keys, of which the options disallow some."""
    random = np.random.default_rng(7)
    shapes = {"query": (1, 1, 2, 4), "key": (1, 1, 3, 4), "value": (1, 1, 3, 4), "d_output": (1, 1, 2, 4)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} | options


def _empty(**options: Any) -> Callable[[Backend], str]:
    """Describe the gradient of a query without an allowed key."""

    def ask(backend: Backend) -> str:
        arguments = _problem(**options)
        got = call(backend, _VJP, arguments)
        for said, dialect in (("0", {}), ("mean", {"GRAD-10": "uniform"}), ("NaN", {"GRAD-10": "nan"})):
            if _same(got, exact(_VJP, arguments, dialect)):
                return said
        return _kind(got)

    return ask


def _padded(**options: Any) -> Callable[[Backend], str]:
    """Describe whether NaN in a key and a value that no query attends to reaches a gradient."""

    def ask(backend: Backend) -> str:
        arguments = _problem(**options)
        clean = exact(_VJP, arguments)
        for name in ("key", "value"):
            arguments[name][..., 2, :] = np.nan
        got = call(backend, _VJP, arguments)
        return "no trace" if _same(got, clean) else _kind(got)

    return ask


def _of_lse(backend: Backend) -> str:
    arguments = _problem(d_lse=np.array([[[0.5, -2.0]]], np.float32))
    got = call(backend, _VJP, arguments)
    for said, dialect in (("counts", {}), ("ignored", {"GRAD-6": "ignored"})):
        if _same(got, exact(_VJP, arguments, dialect)):
            return said
    return _kind(got)


def _of_bias(backend: Backend) -> str:
    bias = np.array([[0.5, -np.inf, 1.0], [0.0, 1.0, -1.0]], np.float32)
    got = call(backend, _VJP, _problem(bias=bias))["d_bias"][0, 1]
    return "0" if got == 0 else "NaN" if np.isnan(got) else "not 0"


def _same(got: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return all(np.allclose(got[name], values[name], 1e-3, 1e-5, equal_nan=True) for name in got)


def _kind(got: Mapping[str, Any]) -> str:
    return "NaN" if any(np.isnan(one).any() for one in got.values()) else "other numbers"


_ROW = np.array([[True, False, True], [False, False, False]])
#: The questions, each with the function that answers it.
QUESTIONS: Mapping[str, Callable[[Backend], str]] = {
    "a query whose keys a mask all disallows": _empty(mask=_ROW),
    "a query whose keys a bias of minus infinity all disallows": _empty(
        bias=np.where(_ROW, 0, -np.inf).astype(np.float32)
    ),
    "a query past its length": _empty(query_lengths=1),
    "no key within the length": _empty(key_lengths=0),
    "NaN in a key and a value past the length": _padded(key_lengths=2),
    "NaN in a key and a value that a mask disallows for all queries": _padded(
        mask=np.array([True, True, False])
    ),
    "a cotangent of the lse": _of_lse,
    "a bias of minus infinity, at its place in `d_bias`": _of_bias,
}
