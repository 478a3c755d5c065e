"""Codes as arrays of a floating-point dtype of 8 bits, which some functions take in place of integers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec import Operation
from attnspec.backends.errors import Unsupported

#: The value of the key `codes`.
FLOAT8 = "float8"
#: The encodings for which libraries have such a dtype.
ENCODINGS = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")
#: The ends of the names of codes; pages may hold numbers.
_CODES = ("codes", "_pages")


def as_float8(call: Mapping[str, Any], form: Operation, encoding: str, xp: Any) -> dict[str, Any]:
    """View the codes of a call as numbers of 8 bits, in the same memory, so that a change of them is seen."""
    if encoding not in ENCODINGS:
        raise Unsupported(f"the function takes codes as numbers of 8 bits, got {encoding}")
    name = f"float8_{encoding}"
    dtype = getattr(xp, name, None) or np.dtype(name)
    codes = {own for own in call if own.endswith(_CODES) and form.arguments[own].numbers == "integer"}
    return {own: x.view(dtype) if own in codes else x for own, x in call.items()}
