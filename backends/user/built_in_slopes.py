"""Kernels that add the biases of ALiBi themselves, which no key describes."""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.backends.errors import BackendError
from attnspec.backends.user.calls import Calls, H
from attnspec.backends.user.convention import OF_FOUR_AXES, Convention
from attnspec.backends.user.wrappers import fill_wrapper
from attnspec.reference import alibi_bias

#: The wrapper: one more feature takes back what a bias adds, but for a constant of each query.
_WRAPPER = """
import numpy as np
import {package} as xp
from attnspec.reference import alibi_bias
from {module} import {first}


def attention({signature}):
    {scale}
    heads, keys = query.shape[{heads}], key.shape[{positions}]
    if not scale or not np.isfinite(scale){refused}:
        raise NotImplementedError("the biases are taken back only with a scale other than 0{where}")
    slopes = -alibi_bias(np.ones((heads, 1, 1)), np.ones((heads, 2, 1)))[:, 0, 1]  # those of POS-7

    def beside(x, feature):
        feature = np.broadcast_to(feature, (*x.shape[:-1], 1)).copy()
        return xp.concat([x, xp.asarray(feature, dtype=x.dtype, device=x.device)], -1)

    query = beside(query, -slopes.reshape({by_head}) / scale)
    key = beside(key, np.arange(keys).reshape({by_position}))
    return {function}({arguments})
"""
#: How the wrapper scales, if the function takes a scale and if it takes none.
_SCALE = "scale = query.shape[-1] ** -0.5 if scale is None else scale  # so no case judges its default"
_NO_SCALE = """scale = (query.shape[-1] + 1) ** -0.5  # that of one more feature
    query = query * (1 + 1 / query.shape[-1]) ** 0.5"""


def check_built_in_slopes(calls: Calls, conventions: Iterable[Convention]) -> None:
    """Refuse a function whose weights fall with the distance although all scores are 0."""
    name, module = calls.backend.name, sys.modules.get(calls.function.__module__)
    if vars(module or object).get("alibi_bias") is alibi_bias:
        return  # it is such a wrapper, of a function whose slopes are wrong
    found = ((convention, _slopes(calls, convention)) for convention in conventions)
    convention, seen = next(((x, shown) for x, shown in found if shown is not None), (None, None))
    if convention is None or seen is None:
        return
    slopes, both_sides = seen
    standard = _list(-alibi_bias(np.ones((calls.heads, 1, 1)), np.ones((calls.heads, 2, 1)))[:, 0, 1])
    text = (
        f"backend {name}: where all scores are 0, the weights of its heads fall by slopes of {_list(slopes)} "
        f"from key to key: it seems to add the biases of ALiBi itself, with slopes of {standard} by POS-7, "
        "which no key describes; "
    )
    given = {own: ours[0] for own, ours in calls.guesses.items() if ours and ours[0] != "dropout_mask"}
    if convention.layout in OF_FOUR_AXES or (both_sides and "is_causal" not in given.values()):
        raise BackendError(f"{text}judge a function of it that takes a bias")
    place = name.partition("?")[0]
    error = BackendError(
        f"{text}judge a wrapper that takes the slopes of POS-7 back: `attnspec init {place}` prints one. "
        "Save it as wrap.py, change what is different in your function, and run "
        "`attnspec init ./wrap.py:attention`"
    )
    after = convention.layout == "BSHD"
    error.add_note(
        fill_wrapper(
            _WRAPPER,
            name,
            calls.function,
            given,
            scale=_SCALE if "scale" in given.values() else _NO_SCALE,
            refused=" or not is_causal" * both_sides + " or heads & (heads - 1)" * (calls.heads != H),
            where=", in causal calls" * both_sides + ", for a power of two of heads" * (calls.heads != H),
            heads="-2" if after else "-3",
            positions="-3" if after else "-2",
            by_head="-1, 1" if after else "-1, 1, 1",
            by_position="-1, 1, 1" if after else "-1, 1",
        )
    )
    raise error


def _slopes(calls: Calls, convention: Convention) -> tuple[NDArray[Any], bool] | None:
    """Return the slope of each head, and whether later keys fall too; None without slopes.

    With queries of 0 each weight shows its bias, and values of 0 and 1 show the weights of the first keys.
    """
    arrays = {name: np.zeros_like(x) for name, x in calls.arrays.items()}
    arrays["value"] += np.eye(*arrays["value"].shape[-2:], dtype=arrays["value"].dtype)
    arrays = calls.drop_batch(convention, arrays)
    got = calls.run(convention, arrays)
    if got is None or got["output"].shape != arrays["query"].shape:
        return None
    few = min(arrays["query"].shape[-2:])  # keys no later than the last query, wherever the first one is
    if few < 3:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.diff(np.log(got["output"][..., :few].astype(np.float64)))  # (*B, H, L, few - 1)
    last = steps[..., -1, :]
    slopes = last.reshape(-1, *last.shape[-2:])[0, :, :1]
    if not np.all(slopes > 1e-3) or not np.allclose(last, slopes, rtol=0.05, atol=1e-3):
        return None
    return slopes[:, 0], bool(np.all(steps[..., 0, :] < 0))


def _list(numbers: NDArray[Any]) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)
