"""Relations between calls: each kind holds for the portable source, and fails where a backend breaks it."""

import threading
from dataclasses import replace
from functools import wraps

import numpy as np
import pytest

from attnspec.backends import load
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.memory import RUNS
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import find, items

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


#: A relation of each kind, who breaks it, the status, the rule, and the difference or the reason.
BROKEN = [
    ("invariance-place-in-the-batch-1-float32", of_the_first_place, "unsupported", "INV-1", "bits"),
    ("invariance-other-calls-between-1-float32", of_the_largest_call, "unsupported", "INV-7", "bits"),
    ("invariance-threads-1-float32", of_the_main_thread, "unsupported", "INV-8", "bits"),
    ("numerics-call-repeated-plain-1-float32", nondeterministic, "should not met", "NUM-9", "bits"),
    ("numerics-batch-entry-alone-1-float32", of_the_batch, "unsupported", "NUM-10", "bits"),
    (
        "numerics-inputs-beside-scale-1-float32",
        writing,
        "fail",
        "NUM-4",
        "query: expected to be unchanged, got changed by the call",
    ),
    (
        "errors-option-has-an-effect-softcap-1-float32",
        without_softcap,
        "fail",
        "ERR-3",
        "softcap: accepted, and changes nothing",
    ),
    ("errors-earlier-calls-scale-1-float32", of_an_earlier_call, "fail", "ERR-13", "value"),
    ("masking-finite-garbage-mask-and-large-1-float32", nudged_by_garbage, "fail", "MASK-12", "bits"),
    ("masking-finite-garbage-after-the-query-1-float32", nudged_by_garbage, "fail", "MASK-12", "bits"),
    ("softmax-one-key-gives-its-value-1-float32", off_by_twenty_roundings, "fail", "SOFT-3", "value"),
    ("softmax-output-alone-lse-and-weights-3-float32", other_when_asked_for_less, "fail", "SOFT-4", "value"),
    ("softmax-returned-weights-are-those-used-1-float32", not_by_its_weights, "fail", "SOFT-4", "value"),
    ("caching-parts-of-its-own-two-1-float32", lse_of_base_two, "fail", "CACHE-10", "value"),
    ("numerics-rounding-has-no-bias-1-float16", cut_off, "fail", "NUM-6", "output: errors of one"),
    (
        "gradients-nan-that-nobody-attends-to-mask-1-float32",
        spreading_nan,
        "should not met",
        "GRAD-12",
        "pattern",
    ),
    (
        "gradients-nan-across-a-disallowed-pair-query-1-float32",
        spreading_nan,
        "should not met",
        "GRAD-12",
        "pattern",
    ),
    ("gradients-nan-in-one-head-query-1-float32", spreading_nan, "fail", "GRAD-18", "pattern"),
    ("gradients-no-silent-zero-1-float32", of_no_query, "fail", "GRAD-17", "d_query: expected"),
    (
        "gradients-last-rounding-has-no-bias-query-1-float16",
        cut_off_gradients,
        "should not met",
        "GRAD-20",
        "d_query: errors of one",
    ),
]

#: The relations of dropout by a seed, which entries of the gallery break.
BROKEN_BY_ENTRIES = {
    "_as_with_the_mask",
    "drops_at_the_probability",
    "drops_independently",
    "differs_by_the_seed",
    "has_one_mask",
}


def test_every_kind_of_relation_is_broken_here():
    # In `test_memory`, `test_sizes_gradients` and `test_seeded_dropout`.
    elsewhere = {run.__name__ for run in RUNS} | {"_by_formula"} | BROKEN_BY_ENTRIES
    own = {named(item.run) for item in items() if isinstance(item, Relation)}
    assert own == {named(find(name).run) for name, *_ in BROKEN} | elsewhere


def named(run):
    """The name of a function, or of that which a partial function calls."""
    return getattr(run, "func", run).__name__


@pytest.mark.parametrize(("name", "backend", "status", "rule", "said"), BROKEN)
def test_a_relation_fails_where_it_is_broken(name, backend, status, rule, said):
    relation = find(name)
    KEPT.clear()
    verdict = judge(backend, relation)
    assert (verdict.status, verdict.rule) == (status, rule)
    assert (verdict.case, verdict.group, verdict.dtype) == (name, relation.group, relation.dtype)
    assert rule in verdict.rules
    assert verdict.difference.kind == said if verdict.difference else verdict.reason.startswith(said)


@pytest.mark.parametrize("name", [name for name, *_ in BROKEN])
def test_the_same_relation_holds_for_what_is_right(name):
    verdict = judge(PORTABLE, find(name))
    assert (verdict.status, verdict.rule, verdict.difference, verdict.reason) == ("pass", "", None, "")


def test_a_mask_that_is_written_into_is_noticed():
    verdict = judge(writing_into_the_mask, find("numerics-inputs-beside-mask-1-float32"))
    assert (verdict.status, verdict.rule) == ("fail", "NUM-4")
    assert verdict.reason.startswith("mask: expected to be unchanged")


def test_the_element_of_a_batch_is_counted_in_the_batch():
    """What differs is found in the entry alone, and named where it lies in the whole."""

    @output_of
    def second_alone(output, every):
        return output + np.spacing(np.abs(output)) * (len(every["query"]) > 1) * (
            np.arange(len(output)).reshape(-1, 1, 1, 1) == 1
        )

    verdict = judge(own(second_alone), find("numerics-batch-entry-alone-1-float32"))
    assert verdict.difference.element[0] == 1


@pytest.mark.parametrize(
    ("name", "lacks", "reason"),
    [
        ("errors-option-has-an-effect-softcap-1-float32", "softcap", "has no argument softcap"),
        ("softmax-output-alone-lse-1-float32", "return_lse", "does not return lse"),
        ("caching-parts-of-its-own-two-1-float32", "return_lse", "returns no lse"),
    ],
)
def test_a_relation_about_what_is_not_there_is_unsupported(name, lacks, reason):
    from attnspec.conformance.judge.call import without

    verdict = judge(without(PORTABLE, lacks), find(name))
    assert verdict.status == "unsupported"
    assert reason in verdict.reason


def test_a_relation_in_which_a_call_raises_is_an_error():
    def raising(query, key, value):
        raise RuntimeError("not here")

    verdict = judge(own(raising), find("softmax-one-key-gives-its-value-1-float32"))
    assert (verdict.status, verdict.rule, verdict.raised.message) == ("error", "SOFT-3", "not here")


def test_an_option_may_have_its_effect_on_an_output_of_a_wrong_shape():
    transposed = own(output_of(lambda output, _: np.swapaxes(output, -1, -2)))
    assert judge(transposed, find("errors-option-has-an-effect-is-causal-1-float32")).status == "pass"


def test_results_that_do_not_fit_each_other_are_a_matter_of_their_shapes():
    @wraps(right)
    def exchanged(query, key, value, *, return_lse=False, return_weights=False, **options):
        output, lse, weights = right(
            query, key, value, return_lse=True, return_weights=True, **options
        )  # in another order than they are asked for
        asked = [found for found, is_asked in ((weights, return_lse), (lse, return_weights)) if is_asked]
        return (output, *asked) if asked else output

    verdict = judge(own(exchanged), find("softmax-returned-weights-are-those-used-2-float32"))
    assert (verdict.status, verdict.rule) == ("fail", "SHAPE-4")
    assert (verdict.difference.kind, verdict.difference.output) == ("shape", "weights")
