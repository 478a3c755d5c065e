"""Passes a query offset as past keys and values, to a function that appends the new ones."""

from collections.abc import Sequence
from typing import Any

from attnspec.backends.errors import Unsupported


def with_past(call: dict[str, Any], past: Sequence[str]) -> dict[str, Any]:
    """Split keys and values at the query offset, if a function takes those before it separately.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.user.past import with_past
    >>> query, key = np.ones((2, 4)), np.ones((5, 4))
    >>> call = {"query": query, "key": key, "value": key, "query_offset": 3}
    >>> {name: array.shape for name, array in with_past(call, ("past_key", "past_value")).items()}
    {'query': (2, 4), 'key': (2, 4), 'value': (2, 4), 'past_key': (3, 4), 'past_value': (3, 4)}
    """
    offset = call.get("query_offset")
    if not past or offset is None or (isinstance(offset, int) and offset == 0):
        return {name: thing for name, thing in call.items() if name != "query_offset" or not past}
    before = call["key"].shape[-2] - call["query"].shape[-2]
    if not isinstance(offset, int) or offset != before or before < 0:
        raise Unsupported(
            f"the function takes an offset as past keys: expected {before} for these sizes, got {offset}"
        )
    call = {name: thing for name, thing in call.items() if name != "query_offset"}
    for name, own in zip(("key", "value"), past, strict=True):
        call[own] = call[name][..., :offset, :]
        call[name] = call[name][..., offset:, :]
    return call
