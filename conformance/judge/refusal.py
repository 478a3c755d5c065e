"""Calls that must be refused: the judge of errors."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.backends import Backend
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.judge.failure import Failure, Raised


def _ones(**shapes: tuple[int, ...]) -> dict[str, Any]:
    return {name: np.ones(shape) for name, shape in shapes.items()}


_WEIGHTS = _ones(query_weight=(2, 2), key_weight=(2, 2), value_weight=(2, 2))

#: Calls that fit, to tell a refusal from a function that always raises.
FITTING: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "projection": _ones(tokens=(3, 2), weight=(2, 2)),
        "scores": _ones(query=(2, 3, 4), key=(2, 3, 4)),
        "attention": _ones(query=(2, 3, 4), key=(2, 3, 4), value=(2, 3, 4)),
        "self_attention": _ones(tokens=(3, 2)) | _WEIGHTS,
        "split_heads": _ones(features=(3, 4)) | {"heads": 2},
        "merge_heads": _ones(split=(2, 3, 2)),
        "multi_head_attention": _ones(tokens=(3, 2)) | _WEIGHTS | _ones(output_weight=(2, 2)) | {"heads": 2},
        "append_cache": _ones(cache=(1, 4, 2), new=(1, 1, 2)) | {"lengths": 2},
        "gather_pages": _ones(pages=(2, 1, 3, 2)) | {"block_table": np.array([1, 0])},
        "merge_partials": _ones(outputs=(2, 3, 2), lses=(2, 3)),
        "rotary": _ones(features=(1, 3, 4)),
        "alibi_bias": _ones(query=(2, 3, 4), key=(2, 3, 4)),
    }
)


def judge_misuse(
    backend: Backend,
    operation: str,
    arguments: Mapping[str, Any],
    rule: str,
    place: str,
    reproduction: str,
) -> str:
    """Make a call that must be refused.

    Returns
    -------
    str
        What the error says.

    Raises
    ------
    Failure
        When the implementation returns something.
    Raised
        When it raises whatever it is given.
    """
    try:
        outputs = call(backend, operation, arguments)
    except Raised as raised:
        refused = str(raised.error)
    else:
        got = ", ".join(f"{name} of shape {array.shape}" for name, array in outputs.items())
        raise Failure(rule, f"{place}\nexpected an error, got {got}\n{reproduction}")
    # What raises whatever it is given refuses nothing.
    call(backend, operation, in_dtype(FITTING[operation], backend.dtypes[0]))
    return refused


def judge_message(message: str, arguments: tuple[str, ...], place: str, reproduction: str) -> None:
    """Look for the argument at fault, or one of those that do not fit each other, in an error (ERR-12).

    Raises
    ------
    Failure
        When it is not named.

    Examples
    --------
    >>> from attnspec.conformance.judge.refusal import judge_message
    >>> judge_message("key: expected depth 8 as in query, got 7", ("key",), "here", "")
    >>> judge_message("attn_mask must be bool", ("mask",), "here", "")
    Traceback (most recent call last):
        ...
    attnspec.conformance.judge.failure.Failure: ERR-12 An error says what is wrong
    here
    expected an error that names mask, got: attn_mask must be bool
    """
    if re.search(rf"\b({'|'.join(arguments)})\b", message, re.IGNORECASE) is None:
        lines = message.strip().splitlines() or ["no message"]
        finding = (
            f"{place}\nexpected an error that names {' or '.join(arguments)}, got: {lines[0]}\n{reproduction}"
        )
        raise Failure("ERR-12", finding.rstrip())
