"""Judges calls that must be rejected, and finds out which gradients an implementation does not compute."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from inspect import unwrap
from typing import Any, NamedTuple

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend, Unsupported
from attnspec.backends.errors import NotDifferentiable
from attnspec.conformance.judge.call import call, observe
from attnspec.conformance.judge.dtypes import Outputs, in_dtype, lse_dtype
from attnspec.conformance.judge.failure import Declined, Failure, Missing, Raised
from attnspec.conformance.verdict import NO_GRADIENT, Code
from attnspec.dtypes import DTYPES
from attnspec.operations.operation import primal


def _ones(**shapes: tuple[int, ...]) -> dict[str, Any]:
    return {name: np.ones(shape) for name, shape in shapes.items()}


_CODES = np.ones((2, 3, 4), np.int8)
_WEIGHTS = _ones(query_weight=(2, 2), key_weight=(2, 2), value_weight=(2, 2))

_STARTS = np.array([0, 1, 3])
_PACKED = _ones(query=(2, 3, 4), key=(2, 3, 4), value=(2, 3, 4)) | {
    "query_starts": _STARTS,
    "key_starts": _STARTS,
}
_SHARDED = _ones(query=(2, 3, 4), key=(2, 3, 4), value=(2, 3, 4)) | {
    "query_shards": _STARTS,
    "key_shards": _STARTS,
}
_LATENT = _ones(query=(2, 3, 4), query_rotary=(2, 3, 2), latent=(4, 5), key_rotary=(4, 2)) | _ones(
    key_weight=(2, 5, 4), value_weight=(2, 5, 3)
)
_DROPPED = _ones(query=(2, 3, 4), key=(2, 3, 4), value=(2, 3, 4)) | {"dropout_p": 0.5, "seed": 1}

_SPARSE: Mapping[str, Mapping[str, Any]] = {
    "block_sparse_attention": {
        "query_block": 2,
        "key_block": 2,
        "block_mask": np.array([[True, False], [True, True]]),
    },
    "listed_attention": {"key_indices": np.array([[0, 1], [2, -1], [0, 2]])},
}
#: Valid calls, which distinguish a refusal from a function that always raises.
FITTING_CALLS: Mapping[str, Mapping[str, Any]] = {
    "projection": _ones(tokens=(3, 2), weight=(2, 2)),
    "scores": _ones(query=(2, 3, 4), key=(2, 3, 4)),
    "attention": _ones(query=(2, 3, 4), key=(2, 3, 4), value=(2, 3, 4)),
    "attention_vjp": _ones(query=(2, 3, 4), key=(2, 3, 4), value=(2, 3, 4), d_output=(2, 3, 4)),
    "self_attention": _ones(tokens=(3, 2)) | _WEIGHTS,
    "split_heads": _ones(features=(3, 4)) | {"heads": 2},
    "merge_heads": _ones(split=(2, 3, 2)),
    "multi_head_attention": _ones(tokens=(3, 2)) | _WEIGHTS | _ones(output_weight=(2, 2)) | {"heads": 2},
    "multi_head_attention_vjp": _ones(tokens=(3, 2), d_output=(3, 2))
    | _WEIGHTS
    | _ones(output_weight=(2, 2))
    | {"heads": 2},
    "append_cache": _ones(cache=(1, 4, 2), new=(1, 1, 2)) | {"lengths": 2},
    "gather_pages": _ones(pages=(2, 1, 3, 2)) | {"block_table": np.array([1, 0])},
    "packed_attention": _PACKED,
    "packed_attention_vjp": _PACKED | _ones(d_output=(2, 3, 4)),
    "sharded_attention": _SHARDED,
    "sharded_attention_vjp": _SHARDED | _ones(d_output=(2, 3, 4)),
    "paged_attention": _ones(query=(2, 1, 4), key_pages=(2, 1, 3, 4), value_pages=(2, 1, 3, 4))
    | {"block_table": np.array([1, 0]), "key_lengths": 4},
    "dequantize": _ones(scales=(1,)) | {"codes": _CODES},
    "dequantize_blocks": _ones(scales=(3, 1)) | {"packed": np.ones((3, 1, 32), np.uint8)},
    "quantized_attention": _ones(query=(2, 3, 4)) | {"key_codes": _CODES, "value_codes": _CODES},
    "low_precision_attention": _ones(query_scales=(1,))
    | {"query_codes": _CODES, "key_codes": _CODES, "value_codes": _CODES},
    "merge_partials": _ones(outputs=(2, 3, 2), lses=(2, 3)),
    "merge_partials_vjp": _ones(outputs=(2, 3, 2), lses=(2, 3), d_output=(3, 2)),
    **{
        f"{name}{vjp}": _ones(query=(2, 3, 4), key=(2, 3, 4), value=(2, 3, 4), **of) | dict(own)
        for vjp, of in (("", {}), ("_vjp", {"d_output": (2, 3, 4)}))
        for name, own in _SPARSE.items()
    },
    "seeded_dropout_attention": _DROPPED,
    "seeded_dropout_attention_vjp": _DROPPED | _ones(d_output=(2, 3, 4)),
    "latent_attention": _LATENT,
    "latent_attention_vjp": _LATENT | _ones(d_output=(2, 3, 3)),
    "indexer_scores": _ones(index_query=(2, 3, 4), index_key=(5, 4), index_weights=(2, 3)),
    "select_keys": _ones(scores=(3, 4)) | {"top_k": 2},
    "rotary": _ones(features=(1, 3, 4)),
    "rotary_frequencies": _ones(features=(1, 3, 4)),
    "rotary_vjp": _ones(features=(1, 3, 4), d_rotated=(1, 3, 4)),
    "alibi_bias": _ones(query=(2, 3, 4), key=(2, 3, 4)),
    "alibi_bias_vjp": _ones(query=(2, 3, 4), key=(2, 3, 4), d_bias=(2, 3, 3), slopes=(2,)),
}


def judge_refusal(backend: Backend, case: Case) -> Outputs | None:
    """Make a call that must or may be refused."""
    assert case.misuse is not None  # noqa: S101 - for the type checker: chosen by it
    functions = (backend.function(name) for name in (case.operation, primal(case.operation)))
    own, forward = (function and unwrap(function) for function in functions)
    differentiated = case.operation.endswith("_vjp") and own is not None and own is forward
    by_library = differentiated or case.operation not in {"attention", *backend.companions}
    if by_library and case.rules[0] in ("ERR-2", "ERR-12") and case.misuse.argument.startswith("d_"):
        raise Missing(f"{backend.library} checks the cotangents, and {backend.name} does not see them")
    try:
        # If computing is allowed, the result is judged like any other, weights included.
        outputs = (observe if case.misuse.allowed else _plain)(backend, case)
    except (Raised, Declined) as raised:
        if isinstance(raised, Declined) and case.rules[0] == "ERR-12":
            # The error does not say anything about an argument.
            raise Missing(f"{backend.name} does not offer this call") from raised
        if isinstance(raised, Raised) and raised.conversion.startswith("to_library"):
            raise Missing(f"{raised.conversion} raised, so {backend.name} was not called") from raised
        message = str(raised.error)
    except Failure as failure:
        if failure.code != "no result" or case.misuse.allowed:
            raise
        raise _accepted(backend, case, failure.reason) from failure
    else:
        if case.misuse.allowed:
            return outputs
        got = ", ".join(f"{name} of shape {array.shape}" for name, array in outputs.items())
        raise _accepted(backend, case, got, outputs)
    _require_fitting(backend, case)
    if case.rules[0] == "ERR-12":
        _require_named(message, _with_own(backend, (case.misuse.argument, *case.misuse.named)))
    return None


def _accepted(backend: Backend, case: Case, got: str, outputs: Outputs | None = None) -> Exception:
    """Return the failure of a call that returned something instead of an error."""
    if case.rules[0] == "ERR-12":
        return Missing(f"{backend.name} refuses no such call")
    return Failure(case.rules[0], f"expected an error, got {got}", code="not refused", outputs=outputs)


def defined_call(case: Case, failure: Failure) -> Case | None:
    """Return a call whose result that of an accepted call must be, if lengths left their axis (ERR-9)."""
    if failure.rule != "ERR-9" or case.operation != "attention":
        return None
    given, sizes = dict(case.arguments), {"query_lengths": "query", "key_lengths": "key"}
    own = {name: np.clip(given[name], 0, given[of].shape[-2]) for name, of in sizes.items() if name in given}
    rule = "MASK-9" if "key_lengths" in own else "MASK-10"
    return replace(case, rules=(rule,), arguments=given | own, misuse=None)


def _with_own(backend: Backend, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Add the function's own names of arguments, which its errors use."""
    convention = getattr(backend.attention, "convention", None)
    names = convention.names if convention is not None else {}
    return (*arguments, *(names[name] for name in arguments if name in names))


def _require_fitting(backend: Backend, case: Case) -> None:
    """Make a valid call. A function that raises for it does not refuse invalid ones."""
    function = backend.function(case.operation)
    if not any(known is function for known in _FIT):
        valid = fitting_call(backend, case.operation, case)
        try:
            call(backend, case.operation, in_dtype(valid, backend.dtypes[0]))
        except Raised as raised:
            raised.valid = True
            raise
        _FIT.append(function)


def fitting_call(backend: Backend, operation: str, case: Case | None = None) -> Mapping[str, Any]:
    """Return a valid call of an operation that fits the constraints of a backend.

    The call of a stack that may be rejected, because of its dtypes, is valid in one dtype.
    """
    from attnspec.conformance.suite.faults import fitting  # imports this room

    if primal(operation) != "attention":
        coded = backend.constraints.encoding if "encoding" in OPERATIONS[operation].arguments else ""
        own = fitting(operation) if case is None or case.must_raise else case.arguments
        return {**FITTING_CALLS.get(operation, own), **({"encoding": coded} if coded else {})}
    limits = backend.constraints
    queries, keys = (3 + -3 % multiple for multiple in limits.multiple)
    depth = limits.depths[0] if limits.depths else 4
    arguments = _ones(query=(2, queries, depth), key=(2, keys, depth), value=(2, keys, depth))
    return arguments if operation == "attention" else arguments | {"d_output": arguments["query"]}


#: The latest functions that returned for a valid call. The call is not repeated for them.
_FIT: deque[Any] = deque(maxlen=32)


def _plain(backend: Backend, case: Case) -> Outputs:
    return call(backend, case.operation, case.arguments, outputs=case.outputs)


def _require_named(message: str, arguments: tuple[str, ...]) -> None:
    """Check that an error names the argument at fault, or one of several that disagree (ERR-12)."""
    if re.search(rf"\b({'|'.join(map(re.escape, arguments))})\b", message, re.IGNORECASE) is None:
        lines = message.strip().splitlines() or ["no message"]
        named = " or ".join(dict.fromkeys(arguments))
        raise Failure(
            "ERR-12", f"expected an error that names {named}, got: {lines[0]}", code="argument not named"
        )


_OPERATOR = OPERATIONS["attention_vjp"]
#: The arrays besides query, key and value whose gradients an implementation may lack, and the cotangent
#: that it may lack.
_PARTS = (*(result.of for result in _OPERATOR.results if result.of in _OPERATOR.options), "d_lse")
#: What the latest plain calls of gradients showed: the function, the dtype, the part and the answer.
_SEEN: deque[tuple[Any, str, str, str]] = deque(maxlen=64)


class Lacking(NamedTuple):
    """The reason for which a call of gradients is unsupported, in words and as the code of a verdict."""

    reason: str
    code: Code


def gradient_lacking(backend: Backend, calls: Iterable[Case], error: Exception) -> Lacking | None:
    """Name the gradient that an implementation does not compute, if a call raised because of it.

    An error in a call of gradients shows a gradient that is not offered if the plainest call of the same
    gradients raises too. Otherwise it is an error of the implementation.
    """
    if isinstance(error, NotDifferentiable):
        return Lacking(f"{backend.name} {NO_GRADIENT}: {error}", "no gradient")
    if not isinstance(error, Raised | Declined):
        return None
    for case in calls:
        if case.operation == primal(case.operation):
            continue
        known = OPERATIONS[case.operation].arguments
        parts = [name for name in _PARTS if case.arguments.get(name) is not None and "query" in known]
        for part in ("", *parts):
            dtype = case.dtype if case.dtype in DTYPES else backend.dtypes[0]
            lacking = _without(backend, case.operation, dtype, part)
            if lacking:
                if part:
                    reason = f"{backend.name} {NO_GRADIENT} with {part}: {lacking}"
                    return Lacking(reason, "no gradient of an argument")
                return Lacking(f"{backend.name} {NO_GRADIENT}: {lacking}", "no gradient")
    return None


def _without(backend: Backend, operation: str, dtype: str, part: str) -> str:
    """Make the plainest call that needs a gradient. Return its error, or an empty string if it returned."""
    function = backend.function(operation)
    for known, *asked, answer in _SEEN:
        if known is function and asked == [dtype, part]:
            return str(answer)
    found = _refusal(backend, operation, dtype, part)
    _SEEN.append((function, dtype, part, found))
    return found


def _refusal(backend: Backend, operation: str, dtype: str, part: str) -> str:
    arguments = in_dtype(fitting_call(backend, operation), dtype)
    calls = [arguments]
    if primal(operation) == "attention":  # an adapter may offer four axes only
        calls.append({name: array[None] for name, array in arguments.items()})
    for arrays in calls:
        try:
            call(backend, operation, arrays | _plainest(part, arrays))
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


def _plainest(part: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plainest array of a name."""
    if not part:
        return {}
    query, keys = arrays["query"], arrays["key"] if "key" in arrays else arrays["latent"]
    shapes = {
        "bias": (*query.shape[:-1], keys.shape[-2]),
        "sinks": (query.shape[-3],),
        "d_lse": query.shape[:-1],
    }
    dtype = lse_dtype(query.dtype.name) if part == "d_lse" else query.dtype
    return {part: np.ones(shapes[part], dtype)}
