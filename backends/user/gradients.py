"""What gradients show that a library computes of a function, where a dialect can describe it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.backends.backend import gradients_of
from attnspec.backends.user.adapter import adapt
from attnspec.backends.user.calls import Calls
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.empty_rows import calls_with_empty_rows
from attnspec.reference import attention_vjp


def note_gradients(calls: Calls, convention: Convention) -> None:
    """Record the variant of GRAD-10 that gradients show.

    Gradients without the part of the lse are a fault unless the function documents it, so no variant of
    GRAD-6 is recorded.
    """
    backend, arrays = calls.backend, calls.drop_batch(convention, calls.arrays)
    adapted = adapt(backend.name, calls.function, convention, backend.xp)
    differentiate = gradients_of(adapted, backend.array_library)
    if differentiate is None or calls.by_distance:
        return
    cotangent = {"d_output": np.cos(np.arange(arrays["query"].size).reshape(arrays["query"].shape))}
    cotangent = {name: x.astype(arrays["query"].dtype) for name, x in cotangent.items()}

    def own(arrays: Mapping[str, Any], options: Mapping[str, Any]) -> list[Any] | None:
        every = backend.array_library.fit_integers({**arrays, **cotangent, **options})
        given = {name: backend.to_library(x) if isinstance(x, np.ndarray) else x for name, x in every.items()}
        places = [given.pop(name) for name in (*arrays, *cotangent)]
        try:
            with backend.array_library.at_call((*places, *given.values())):
                got = differentiate(*places, **given)
            return [np.asarray(backend.to_numpy(x), np.float64) for x in got[: len(arrays)]]
        except Exception:  # noqa: BLE001 - a function that has no gradients may raise anything
            return None

    def expected(arrays: Mapping[str, Any], options: Mapping[str, Any]) -> list[Any]:
        options = {"scale": calls.plain, **calls.base, **options}
        return [np.asarray(x) for x in attention_vjp(**arrays, **cotangent, **options)[: len(arrays)]]

    rows = set()
    for name, given, options, meaning in calls_with_empty_rows(calls, convention, str(arrays["query"].dtype)):
        if (got := own(given, options)) is not None:
            if not (empty := calls.expected(given, meaning)["lse"] == -np.inf).any():
                continue  # aligned at the top left, every query sees the first key
            row = _rows(got, expected(given, meaning), empty, cotangent["d_output"], given["key"].shape[-2])
            # In the variant, NaN reaches the values of the keys that a mask or a bias disallows.
            whole = row != "nan" or name not in ("mask", "bias") or np.isnan(got[2]).any()
            rows.add(row if whole else "other")
    # Where the rows themselves are right, such gradients are a fault, and no convention.
    if rows in ({"nan"}, {"uniform"}) and {"MASK-2", "MASK-6"} & {*calls.variants}:
        calls.variants["GRAD-10"] = (variant := rows.pop())
        words = {"nan": "d_query was NaN", "uniform": "d_value had the mean of the cotangents"}
        calls.why["GRAD-10"] = f"where rows had no keys, {words[variant]}"


def _agree(got: list[Any] | None, expected: list[Any]) -> bool:
    """Whether gradients are close to those of the reference."""
    return got is not None and all(np.allclose(*pair, 0.02, 0.02) for pair in zip(got, expected, strict=True))


def _rows(got: list[Any], expected: list[Any], empty: Any, d_output: Any, keys: int) -> str:
    """Return the variant of GRAD-10 that gradients of a call with empty rows show, or another word."""
    if np.isnan(got[0][empty]).all():
        return "nan"
    mean = (d_output * empty[..., None]).sum(axis=-2, keepdims=True) / max(keys, 1)
    return "uniform" if _agree(got, [*expected[:2], expected[2] + mean]) else "other"
