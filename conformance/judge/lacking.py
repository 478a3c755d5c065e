"""Gradients that an implementation does not compute, so that it raises (GRAD-17)."""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend, Unsupported
from attnspec.backends.errors import NotDifferentiable
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import in_dtype, lse_dtype
from attnspec.conformance.judge.failure import Declined, Failure, Raised
from attnspec.conformance.judge.refusal import fitting
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.verdict import NO_GRADIENT, Code
from attnspec.dtypes import DTYPES

_VJP = "attention_vjp"
#: The arrays besides query, key and value whose gradients an implementation may lack, and the cotangent
#: that it may lack.
_PARTS = (*(one.of for one in OPERATIONS[_VJP].results if one.of in OPERATIONS[_VJP].options), "d_lse")
#: What the latest plain calls of gradients showed: the function, the dtype, the part and the answer.
_SEEN: deque[tuple[Any, str, str, str]] = deque(maxlen=64)


class Lacking(NamedTuple):
    """The reason for which a call of gradients is unsupported, in words and as the code of a verdict."""

    reason: str
    code: Code


def gradient_lacking(backend: Backend, item: Case | Relation, error: Exception) -> Lacking | None:
    """Name the gradient that an implementation does not compute, if a call raised because of it.

    An error in a call of gradients shows a gradient that is not offered if the plainest call of the same
    gradients raises too. Otherwise it is an error of the implementation.
    """
    if isinstance(error, NotDifferentiable):
        return Lacking(f"{backend.name} {NO_GRADIENT}: {error}", "no gradient")
    if not isinstance(error, Raised | Declined):
        return None
    for case in item.calls if isinstance(item, Relation) else (item,):
        parts = [one for one in _PARTS if case.arguments.get(one) is not None]
        for part in ("", *parts) if case.operation == _VJP else ():
            lacking = _without(backend, case.dtype if case.dtype in DTYPES else backend.dtypes[0], part)
            if lacking:
                if part:
                    reason = f"{backend.name} {NO_GRADIENT} with {part}: {lacking}"
                    return Lacking(reason, "no gradient of an argument")
                return Lacking(f"{backend.name} {NO_GRADIENT}: {lacking}", "no gradient")
    return None


def _without(backend: Backend, dtype: str, part: str) -> str:
    """Make the plainest call that needs a gradient. Return its error, or an empty string if it returned."""
    function = backend.function(_VJP)
    for known, *asked, answer in _SEEN:
        if known is function and asked == [dtype, part]:
            return str(answer)
    found = _raised(backend, dtype, part)
    _SEEN.append((function, dtype, part, found))
    return found


def _raised(backend: Backend, dtype: str, part: str) -> str:
    arguments = in_dtype(fitting(backend, _VJP), dtype)
    # An adapter may offer four axes only.
    for arrays in (arguments, {name: array[None] for name, array in arguments.items()}):
        try:
            call(backend, _VJP, arrays | _given(part, arrays))
        except Raised as raised:
            first = next(iter(raised.data.message.splitlines()), "")
            return f"{raised.data.type}: {first}" if first else raised.data.type
        except (Declined, NotDifferentiable) as declined:
            return str(declined).splitlines()[0]
        except Unsupported:
            continue
        except Failure:
            pass
        break
    return ""


def _given(part: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plainest array of a name."""
    query, key = arrays["query"], arrays["key"]
    shapes = {
        "bias": (*query.shape[:-1], key.shape[-2]),
        "sinks": (query.shape[-3],),
        "d_lse": query.shape[:-1],
    }
    dtype = lse_dtype(query.dtype.name) if part == "d_lse" else query.dtype
    return {part: np.ones(shapes[part], dtype)} if part else {}
