"""Signatures of attention functions of real libraries, with functions in NumPy that behave as theirs do."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnspec import reference


@dataclass(frozen=True)
class Signature:
    """A signature, what is special about the function, and what `attnspec init` makes of it."""

    parameters: str
    #: Its parameter for each canonical argument that changes its result.
    means: dict[str, str]
    #: ``BHSD``, ``BSHD``, ``SHD`` (without a batch) or ``BS(HD)``.
    layout: str = "BHSD"
    #: What it needs, returns and means otherwise, as `emulate` reads it.
    quirks: tuple[str, ...] = ()
    #: The canonical arguments that the suite tests through the written file.
    tested: tuple[str, ...] = ()
    #: The known parameters that the file says no case tests.
    untested: tuple[str, ...] = ()
    #: A part of the message if no file can be written.
    refused: str = ""


_LONG = ("query", "key", "value")
SIGNATURES = {
    name: Signature(**{key: tuple(thing) if isinstance(thing, list) else thing for key, thing in row.items()})
    for path in sorted(Path(__file__).parent.glob("signatures*.toml"))
    for name, row in tomllib.loads(path.read_text(encoding="utf-8")).items()
}


def emulate(signature: Signature, given: dict[str, Any]) -> Any:
    """Compute what the function of a signature returns for its arguments."""
    own = {ours: given[theirs] for ours, theirs in signature.means.items() if given.get(theirs) is not None}
    quirks = signature.quirks
    if signature.layout == "HD":
        _require(own["query"].ndim == 2 and own["key"].ndim == 3, "expected one query")
    query, key, value = (_from_layout(own.pop(name), signature.layout, given) for name in _LONG)
    axes = 3 if signature.layout == "SHD" else 4
    if "four axes" in quirks or signature.layout != "BHSD":
        _require(query.ndim == key.ndim == value.ndim == axes, f"expected {axes} axes")
    _require("groups" not in quirks or query.ndim == 4 == key.ndim + 1, "expected (tokens, Hkv, groups, D)")
    _require("equal" not in quirks or query.ndim < 3 or query.shape[-3] == key.shape[-3], "heads")
    _require("float32" not in quirks or query.dtype == np.float32, "dtype")
    _require("float128" not in quirks, "dtype")
    _require("float16" not in quirks or query.dtype == np.float16, "dtype")
    _require("equal depths" not in quirks or value.shape[-1] == key.shape[-1], "depths")
    _require("list" not in quirks or isinstance(given["biases"], list), "expected a list of biases")
    _require("block mask" not in quirks or given["block_mask"] is None, "expected a BlockMask")
    for name in ("key_lengths", "query_lengths") if "per entry" in quirks else ():
        _require(name not in own or np.ndim(own[name]) == 1, "expected a length for each batch entry")
    if given.get("alibi_slopes") is not None:
        slopes = np.float64(given["alibi_slopes"])
        first = key.shape[-2] - query.shape[-2] if "bottom-right" in quirks else 0
        distances = np.abs(np.arange(query.shape[-2])[:, None] + first - np.arange(key.shape[-2]))
        own["bias"] = -slopes[:, None, None] * distances
    _with_meaning(own, quirks)
    if "bottom-right" in quirks and ("window" in own or own.get("is_causal")):
        own["query_offset"] = key.shape[-2] - query.shape[-2]
    more = [kind for kind in ("lse", "weights") if kind in quirks]
    options = own | {f"return_{kind}": True for kind in more}
    dtype = np.promote_types(query.dtype, np.float32)
    results = reference.attention(query, key, value, **options, dtype=dtype)
    output, *rest = results if isinstance(results, tuple) else (results,)
    output = _to_layout(output.astype(query.dtype), signature.layout)
    rest = [*rest, None] if "none beside" in quirks else rest
    return (output, *rest) if rest else output


def _with_meaning(own: dict[str, Any], quirks: tuple[str, ...]) -> None:
    """Write the options of a call as the standard has them."""
    if own.get("mask") is not None and own.get("mask") is own.get("bias"):
        del own["bias" if own["mask"].dtype == bool else "mask"]
    if "mask of keys" in quirks and "mask" in own:
        _require(own["mask"].ndim == 2, "expected a mask of keys")
        own["mask"] = own["mask"][:, None, None]
    if "ignores" in quirks and "mask" in own:
        own["mask"] = ~own["mask"]
    if "zero softcap" in quirks and own.get("softcap") == 0:
        del own["softcap"]
    if "window" in own:
        _with_window(own, quirks)
    if "causal" in quirks:
        if own.get("is_causal") is False:
            raise NotImplementedError("only causal attention")
        own["is_causal"] = True
    if "is_causal" in own:
        own["is_causal"] = bool(own["is_causal"])


def _with_window(own: dict[str, Any], quirks: tuple[str, ...]) -> None:
    """Write the window of a call as two sides, of which None is open."""
    window = own.pop("window")
    if "number of keys" in quirks or "left" in quirks:
        window = (window - ("number of keys" in quirks), 0 if "ends" in quirks else None)
    if "minus one" in quirks:
        window = tuple(None if side == -1 else side for side in window)
    if window != (None, None):
        own["window"] = window


def _require(holds: object, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _from_layout(array: Any, layout: str, given: dict[str, Any]) -> Any:
    if layout == "BS(HD)":
        array = array.reshape(*array.shape[:-1], given["head_num"], -1)
    return array if layout == "BHSD" else np.swapaxes(array, -2, -3)


def _to_layout(array: Any, layout: str) -> Any:
    array = array if layout == "BHSD" else np.swapaxes(array, -2, -3)
    return array.reshape(*array.shape[:-2], -1) if layout == "BS(HD)" else array
