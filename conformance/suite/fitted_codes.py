"""Fits the codes of a call to one encoding: they become those of the nearest numbers, and scales follow."""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np

from attnspec import Case
from attnspec.backends.stored_codes import nearest_codes
from attnspec.backends.user.scales import SCALES
from attnspec.operations.quantization import RANGES
from attnspec.reference import dequantize

#: The rules about one encoding, whose calls show nothing with another one.
_OF_ONE = frozenset(("QUANT-3", "QUANT-4", "QUANT-12", "QUANT-13", "QUANT-14"))
#: Numbers of `int8` are up to 127, and those of other encodings are about 1.
_UNIT = 64.0


def with_encoding(case: Case, encoding: str) -> Mapping[str, Any]:
    """Return the arguments of a call with codes of an encoding, or the same if it cannot hold them."""
    given = case.arguments
    own = given.get("encoding", "int8")
    codes = [name for name, x in given.items() if _are_codes(name, x)]
    zero_points = [name for name in given if name.endswith("zero_points")]
    signed: Any = [given[name] for name in codes if getattr(given[name], "dtype", None) == np.int8]
    if own == encoding == "int8" and signed and not case.misuse and crc32(signed[0].tobytes()) % 2:
        # A function without an argument for the encoding may have none for zero points.
        return {x: y for x, y in given.items() if x not in zero_points or "QUANT-2" in case.rules}
    if not encoding or own == encoding or not codes or zero_points or _OF_ONE.intersection(case.rules):
        return given
    if "e8m0fnu" in (own, encoding):  # of scales, which are powers of two
        return given
    if case.misuse:  # its codes may be the fault
        return {**given, "encoding": encoding} if "encoding" not in given else given
    factor = {"int8": 1 / _UNIT}.get(own, 1.0) * {"int8": _UNIT}.get(encoding, 1.0)
    call = {**given, "encoding": encoding}
    for name in codes:
        stored: Any = given[name]
        stored = stored & RANGES[own][1] if own == "e2m1fn" else stored  # in pages that no call reads
        numbers = dequantize(np.ones(1), stored, encoding=own) * factor
        call[name] = nearest_codes(numbers, encoding)
        if np.isnan(numbers).any() and encoding in ("int8", "e2m1fn"):
            return given
    for name in (name for name in given if name.endswith(SCALES.lstrip("_")) and given[name] is not None):
        scales: Any = given[name]
        call[name] = (scales / factor).astype(scales.dtype)
    return call


def _are_codes(name: str, array: Any) -> bool:
    integers = getattr(getattr(array, "dtype", None), "kind", "") in ("i", "u")
    return integers and name.endswith(("codes", "_pages"))
