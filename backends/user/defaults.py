"""What a function is given in every call: the specified defaults of options, and a module."""

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Operation
from attnspec.backends.errors import Unsupported
from attnspec.backends.library.library import device_of
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.scales import FLAT, SCALES, codes_of, shape_of
from attnspec.backends.user.slopes import positions_of
from attnspec.backends.user.trials import WIDE
from attnspec.operations import Argument
from attnspec.operations.letters import BATCH, HEADS

#: The arrays whose depths the default scale is made of (SCORE-2, LATENT-2).
_QUERIES = ("query", "query_codes", "query_rotary")
#: The number that a whole array has by default.
_FILLED: Mapping[str, Any] = {
    "mask": True,
    "dropout_mask": True,
    "bias": 0,
    "sinks": -np.inf,
    "query_segment_ids": 0,
    "key_segment_ids": 0,
}
_POSITIONS = ("query_positions", "key_positions")
_LISTS, _BLOCKS = ("block_counts", "block_indices"), ("block_counts", "block_indices", "block_mask")
_LENGTHS = {"query_lengths": "L", "key_lengths": "S"}


def _is_per_code(option: str) -> bool:
    return option.endswith(("_scales", "_zero_points"))


def default_of(option: str, form: Operation, call: Mapping[str, Any], convention: Convention, xp: Any) -> Any:
    """Return the specified default of an option for a call with canonical arrays."""
    argument = form.arguments[option]
    if convention.names.get(option, option) in convention.takes_none:
        return None
    if option == "scale":
        # A depth of 0 has no default scale. With a scale of 1 the function itself has to refuse it (ERR-5).
        depth = sum(call[name].shape[-1] for name in _QUERIES if name in call)
        return max(depth, 1) ** -0.5
    if option == "window":
        number = convention.open_side
        if convention.window != "sides":
            return WIDE if number is None else number
        return number if number is None else (number, number)
    if argument.default is not None:
        return argument.default
    sizes = _sizes(form, call)
    if option in _LENGTHS:
        starts = call.get(option.replace("lengths", "starts"))
        return sizes.get(_LENGTHS[option]) if starts is None else starts[1:] - starts[:-1]
    if option in _BLOCKS or _is_per_code(option):
        kind = FLAT.get(convention.scales, convention.scales) or "head"
        return (
            _every_block(option, call, form, xp) if option in _BLOCKS else _of_codes(option, call, kind, xp)
        )
    shape = _shape(argument, sizes, call[form.arrays[0]].shape, form)
    if shape is None or option not in (*_FILLED, *_POSITIONS):
        return None
    first = call[form.arrays[0]]
    if option in _POSITIONS:
        others = {name: x for name, x in call.items() if name not in _POSITIONS}
        positions = positions_of(others)[_POSITIONS.index(option)]
        return _array(np.broadcast_to(positions, shape), first, xp)
    filled = np.full(shape, _FILLED[option])
    return _array(filled, first, xp, of_query=argument.numbers == "floating")


def with_defaults(
    call: Mapping[str, Any], options: Collection[str], convention: Convention, xp: Any, form: Operation
) -> dict[str, Any]:
    """Add the specified defaults of options that a call does not have."""
    added = {name for name in options if call.get(name) is None}
    if convention.names.get("mask") == convention.names.get("bias", ""):  # one parameter takes either
        added -= {"bias"} | ({"mask"} if call.get("bias") is not None else set())
    try:
        own = {name: default_of(name, form, call, convention, xp) for name in form.options if name in added}
    except (IndexError, KeyError, ValueError) as error:  # arrays without the axes of the operation
        raise Unsupported(f"arrays of these shapes have no default of {', '.join(sorted(added))}") from error
    return dict(call) | own


def _sizes(form: Operation, call: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers that letters stand for in the arrays of a call."""
    sizes: dict[str, int] = {}
    for name in form.arrays:
        shape = getattr(call.get(name), "shape", ())
        for letter, size in zip(reversed(form.arguments[name].shape), reversed(shape), strict=False):
            if letter != BATCH:
                sizes.setdefault(letter, int(size))
    if "T" in sizes and "K" in sizes:
        sizes["S"] = sizes["T*K"] = sizes["T"] * sizes["K"]
    if "query_starts" in call:
        sizes["G"] = len(call["query_starts"]) - 1
    return sizes


def _shape(
    argument: Argument, sizes: Mapping[str, int], first: tuple[int, ...], form: Operation
) -> tuple[int, ...] | None:
    """Return the shape of an argument in a call, or None if its letters are not those of the arrays."""
    letters = form.arguments[form.arrays[0]].shape
    outer = tuple(first[: max(len(first) - len(letters) + 1, 0)]) if BATCH in letters else ()
    # A call may have no axis of heads.
    inner = [
        letter for letter in argument.shape if letter != BATCH and (letter in sizes or letter not in HEADS)
    ]
    if not all(letter in sizes for letter in inner):
        return None
    return (*(outer if BATCH in argument.shape else ()), *(sizes[letter] for letter in inner))


def _array(array: Any, like: Any, xp: Any, *, of_query: bool = False) -> Any:
    """Put an array of NumPy beside an array of the library, and give it the dtype of this if asked."""
    there = device_of(like)
    if of_query:
        there["dtype"] = like.dtype if "float" in str(like.dtype) else xp.float32
        array = array.astype(np.float32)
    return xp.asarray(np.ascontiguousarray(array), **there)


def _every_block(option: str, call: Mapping[str, Any], form: Operation, xp: Any) -> Any:
    """Return the count, the list or the mask of all blocks of keys, for each block of queries."""
    if option in _LISTS and any(call.get(name) is not None for name in _LISTS):
        raise Unsupported("the function needs lists of blocks, got one without the other")
    queries, sizes = call[form.arrays[0]], _sizes(form, call)
    rows, columns = -(-sizes["L"] // call["query_block"]), -(-sizes["S"] // call["key_block"])
    numbers = np.full(1, columns) if option == "block_counts" else np.arange(columns)
    numbers = np.ones(columns, bool) if option == "block_mask" else numbers.astype(np.int32)
    lists = np.broadcast_to(numbers, (*queries.shape[:-2], rows, *numbers.shape))
    return _array(lists[..., 0] if option == "block_counts" else lists, queries, xp)


def _of_codes(option: str, call: Mapping[str, Any], granularity: str, xp: Any) -> Any:
    """Return scales of 1 or zero points of 0."""
    codes = call[codes_of(option, call)]
    numbers = np.ones(shape_of(granularity, codes.shape))
    if option.endswith(SCALES):
        return _array(numbers, call[next(name for name in _QUERIES if name in call)], xp, of_query=True)
    return xp.zeros_like(codes[..., :1, :1])


def options_without_default(operation: str) -> tuple[str, ...]:
    """Name the options of an operation whose absence no value stands for."""
    form = OPERATIONS[operation]
    return tuple(option for option in form.options if _is_without_default(option, form.arguments[option]))


def _is_without_default(option: str, argument: Argument) -> bool:
    known = option in (*_FILLED, *_POSITIONS, *_BLOCKS) or _is_per_code(option)
    return argument.kind == "array" and argument.default is None and not known


#: The attributes of a module that stand for arguments of attention, as in the functions of Transformers.
ATTRIBUTES = {"is_causal": "is_causal", "scale": "scaling"}


def with_module(call: Mapping[str, Any], module: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Replace the arguments that are attributes of a module by a module that has them, and its sizes."""
    if not module:
        return dict(call)
    heads, key_heads, depth = (sizes[size] for size in ("query_heads", "key_heads", "depth"))
    config = {
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "hidden_size": heads * depth,
        "head_dim": depth,
        "attention_dropout": 0.0,
        "sliding_window": None,
        "_attn_implementation": "sdpa",
    }
    attributes: dict[str, Any] = {
        **config,
        "config": SimpleNamespace(**config),
        "num_heads": heads,
        "num_key_value_groups": heads // max(key_heads, 1),
        "scaling": max(depth, 1) ** -0.5,
        "is_causal": False,
        "training": False,
        "layer_idx": 0,
    }
    start = f"{module}."
    attributes |= {own.removeprefix(start): x for own, x in call.items() if own.startswith(start)}
    rest = {own: x for own, x in call.items() if not own.startswith(start)}
    return {module: SimpleNamespace(**attributes), **rest}
