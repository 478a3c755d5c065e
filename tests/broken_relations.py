"""Backends that break relations between calls, and the relation of each kind that they break."""

import threading
from dataclasses import replace
from functools import wraps

import numpy as np

from attnspec.backends import load

PORTABLE = load("numpy-portable")
right = PORTABLE.attention


def own(function):
    return replace(PORTABLE, name=function.__name__, attention=function)


def output_of(change):
    """Attention whose output is changed: change(output, all arguments) -> output."""

    @wraps(right)
    def attention(query, key, value, **options):
        found = right(query, key, value, **options)
        every = {"query": query, "key": key, "value": value, **options}
        if isinstance(found, tuple):
            return (change(found[0], every).astype(query.dtype), *found[1:])
        return change(found, every).astype(query.dtype)

    return attention


def arguments_of(change):
    """Attention whose arguments are changed: change(all arguments) -> those to be replaced."""

    @wraps(right)
    def attention(query, key, value, **options):
        every = {"query": query, "key": key, "value": value, **options}
        every |= change(every)
        arrays = [every.pop(name) for name in ("query", "key", "value")]
        return right(*arrays, **every)

    return attention


@own
@output_of
def nondeterministic(output, _):
    noise = np.random.default_rng().integers(0, 2, output.shape).astype(output.dtype)
    return output + noise * np.spacing(np.abs(output))


@own
@output_of
def of_the_batch(output, every):
    return output + np.spacing(np.abs(output)) if len(every["query"]) > 1 else output


@own
@output_of
def writing(output, every):
    every["query"][...] = 0
    return output


@own
@output_of
def writing_into_the_mask(output, every):
    if every.get("mask") is not None:
        every["mask"][...] = True
    return output


@own
@arguments_of
def without_softcap(_):
    return {"softcap": None}


KEPT = {}


@own
@arguments_of
def of_an_earlier_call(every):
    return {"scale": KEPT.setdefault((every["query"].shape, every["query"].dtype), every.get("scale"))}


@own
@wraps(right)
def nudged_by_garbage(query, key, value, **options):
    """The weights of a row are off by a bit where a key nobody may attend to is large."""
    found = right(query, key, value, **options)
    if isinstance(found, tuple) and np.abs(key).max() > 1000:
        return (*found[:-1], (found[-1] + np.spacing(found[-1])).astype(query.dtype))
    return found


@own
@output_of
def off_by_twenty_roundings(output, _):
    return output * output.dtype.type(1 + 20 * np.finfo(output.dtype).epsneg)


@own
@wraps(right)
def other_when_asked_for_less(query, key, value, **options):
    """The path for the output alone forgets the causal mask."""
    if not any(options.get(f"return_{name}") for name in ("lse", "weights")):
        options["is_causal"] = False
    return right(query, key, value, **options)


@own
@output_of
def not_by_its_weights(output, _):
    return output * 1.01


@own
@wraps(right)
def lse_of_base_two(query, key, value, *, return_lse=False, **options):
    found = right(query, key, value, return_lse=return_lse, **options)
    if not return_lse:
        return found
    return (found[0], (found[1] / np.log(2)).astype(found[1].dtype), *found[2:])


@own
@output_of
def cut_off(output, every):
    wide = {
        name: x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind not in "biu" else x
        for name, x in every.items()
        if not name.startswith("return_")
    }
    arrays = [wide.pop(name) for name in ("query", "key", "value")]
    whole = right(*arrays, **wide)
    return np.where(np.abs(output) > np.abs(whole), np.nextafter(output, np.zeros_like(output)), output)


@own
@output_of
def of_the_first_place(output, _):
    return np.concatenate([np.nextafter(output[:1], 9), output[1:]]) if output.ndim > 3 else output


@own
@output_of
def of_the_largest_call(output, every):
    KEPT["keys"] = max(KEPT.get("keys", 0), every["key"].shape[-2])
    return np.nextafter(output, 9) if KEPT["keys"] > every["key"].shape[-2] else output


@own
@output_of
def of_the_main_thread(output, _):
    return output if threading.current_thread() is threading.main_thread() else np.nextafter(output, 9)


right_vjp = PORTABLE.companions["attention_vjp"]


def own_gradients(change):
    """A backend whose gradients are changed: change(gradients, arrays, options) -> gradients."""

    @wraps(right_vjp)
    def attention_vjp(*arrays, **options):
        return tuple(change(right_vjp(*arrays, **options), arrays, options))

    companions = {**PORTABLE.companions, "attention_vjp": attention_vjp}
    return replace(PORTABLE, name=change.__name__, companions=companions)


@own_gradients
def spreading_nan(found, arrays, _):
    nan = np.nan if any(np.isnan(array).any() for array in arrays) else 0
    return [array + np.asarray(nan, array.dtype) for array in found]


@own_gradients
def of_no_query(found, _arrays, _options):
    return [np.zeros_like(found[0]), *found[1:]]


@own_gradients
def cut_off_gradients(_found, arrays, options):
    exact = right_vjp(*(array.astype(np.float64) for array in arrays), **options)
    near = [array.astype(arrays[0].dtype) for array in exact]
    return [
        np.where(
            np.abs(short.astype(np.float64)) > np.abs(wide), np.nextafter(short, np.zeros_like(short)), short
        )
        for short, wide in zip(near, exact, strict=True)
    ]


#: For each kind of relation: one of them, who breaks it, and what is said.
BROKEN = {
    "_same_as_the_whole": (
        "invariance-place-in-the-batch-1-float32",
        of_the_first_place,
        "unsupported",
        "INV-1",
        "bits",
    ),
    "same_after_others": (
        "invariance-other-calls-between-1-float32",
        of_the_largest_call,
        "unsupported",
        "INV-7",
        "bits",
    ),
    "same_from_threads": (
        "invariance-threads-1-float32",
        of_the_main_thread,
        "unsupported",
        "INV-8",
        "bits",
    ),
    "_repeats": (
        "numerics-call-repeated-plain-1-float32",
        nondeterministic,
        "should not met",
        "NUM-9",
        "bits",
    ),
    "_same_alone": ("numerics-batch-entry-alone-1-float32", of_the_batch, "unsupported", "NUM-10", "bits"),
    "_only_called": (
        "numerics-inputs-beside-scale-1-float32",
        writing,
        "fail",
        "NUM-4",
        "query: expected to be unchanged, got changed by the call",
    ),
    "_differ": (
        "errors-option-has-an-effect-softcap-1-float32",
        without_softcap,
        "fail",
        "ERR-3",
        "softcap: accepted, and changes nothing",
    ),
    "each_its_own": ("errors-earlier-calls-scale-1-float32", of_an_earlier_call, "fail", "ERR-13", "value"),
    "_same_weights": (
        "masking-finite-garbage-mask-and-large-1-float32",
        nudged_by_garbage,
        "fail",
        "MASK-12",
        "bits",
    ),
    "_same_earlier_weights": (
        "masking-finite-garbage-after-the-query-1-float32",
        nudged_by_garbage,
        "fail",
        "MASK-12",
        "bits",
    ),
    "_is_the_value": (
        "softmax-one-key-gives-its-value-1-float32",
        off_by_twenty_roundings,
        "fail",
        "SOFT-3",
        "value",
    ),
    "run": (
        "softmax-output-alone-lse-and-weights-3-float32",
        other_when_asked_for_less,
        "fail",
        "SOFT-4",
        "value",
    ),
    "_weights_give_the_output": (
        "softmax-returned-weights-are-those-used-1-float32",
        not_by_its_weights,
        "fail",
        "SOFT-4",
        "value",
    ),
    "_merge_to_the_whole": (
        "caching-parts-of-its-own-two-1-float32",
        lse_of_base_two,
        "fail",
        "CACHE-10",
        "value",
    ),
    "_is_unbiased": (
        "numerics-rounding-has-no-bias-1-float16",
        cut_off,
        "fail",
        "NUM-6",
        "output: errors of one",
    ),
    "_unchanged": (
        "gradients-nan-that-nobody-attends-to-mask-1-float32",
        spreading_nan,
        "should not met",
        "GRAD-12",
        "pattern",
    ),
    "_beyond_the_pairs": (
        "gradients-nan-across-a-disallowed-pair-query-1-float32",
        spreading_nan,
        "should not met",
        "GRAD-12",
        "pattern",
    ),
    "_beyond_the_head": (
        "gradients-nan-in-one-head-query-1-float32",
        spreading_nan,
        "fail",
        "GRAD-18",
        "pattern",
    ),
    "_not_zero": ("gradients-no-silent-zero-1-float32", of_no_query, "fail", "GRAD-17", "d_query: expected"),
    "_is_rounded_to_nearest": (
        "gradients-last-rounding-has-no-bias-query-1-float16",
        cut_off_gradients,
        "should not met",
        "GRAD-20",
        "d_query: errors of one",
    ),
}
