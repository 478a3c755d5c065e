"""Calls with every argument of an operation, and calls that ask for fewer results, show what is wrong."""

import inspect
from functools import wraps
from itertools import chain

import numpy as np
import pytest
import torch
from tests_support import backend_of_operations, whole_suite

from attnspec import OPERATIONS, reference
from attnspec.backends import Backend, load_library
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import groups_of
from attnspec.conformance.suite.group import Draw
from attnspec.conformance.suite.whole_calls import ATTENDING, OTHERS, whole_calls
from attnspec.reference import functions
from attnspec.sizes import bound, misfits

#: Arguments of self-attention, which has an option in its golden vectors only, and of what is asked for.
ABSENT = {("self_attention", "mask"), ("self_attention", "is_causal")}


def cases_of(name):
    """The cases of a group, by operation."""
    (group,) = (group for group in groups_of("numerics") if group.name == name)
    made = {}
    for case in group.items():
        made.setdefault(case.operation, []).append(case)
    return made


def changed_backend(operation, change):
    """A backend that changes the arguments, and whose results have the dtypes of NUM-1 and NUM-7."""
    run, form = reference.function(operation), OPERATIONS[operation]
    signature = inspect.signature(run)

    def changed(*arrays, **options):
        given = dict(signature.bind(*arrays, **options).arguments)
        real = {name: x for name, x in given.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f"}
        own = next(iter(real.values())).dtype
        results = run(**given | change(given))
        results = results if isinstance(results, tuple) else (results,)
        dtypes = {f"d_{name}": x.dtype for name, x in real.items()}
        wider = np.float64 if own == np.float64 else np.float32
        dtypes |= dict.fromkeys(("lse", "max", "index_scores", "inverse_frequencies"), wider)
        pairs = zip(results, form.wanted(given), strict=True)
        cast = tuple(x.astype(dtypes.get(name, own)) if x.dtype.kind == "f" else x for x, name in pairs)
        return cast if len(cast) > 1 else cast[0]

    changed.__signature__ = signature
    return backend_of_operations({operation: changed})


def wrong(operation, name, change):
    """A backend that changes one argument."""
    return changed_backend(
        operation, lambda given: {name: change(given[name])} if given.get(name) is not None else {}
    )


def unseen(made, names_of, change):
    """The operations and arguments whose change no case shows."""
    for operation, cases in made.items():
        for name in {name for case in cases for name in names_of(case)}:
            backend = wrong(operation, name, change)
            if not any(judge(backend, case).status in ("fail", "error") for case in cases):
                yield operation, name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_valid_calls_have_every_argument(dtype):
    for operation, form in OPERATIONS.items():
        calls = whole_calls(Draw("any"), operation, dtype)
        assert [wrong for call in calls for wrong in misfits(operation, call)] == []
        asked = {name for name in form.arguments if name.startswith("return_")}
        lacking = {*form.arguments} - asked - {name for call in calls for name in call}
        assert {(operation, name) for name in lacking} <= ABSENT | {(operation, "encoding")}


def real(case):
    """The arguments of a call that are real numbers."""
    declared = OPERATIONS[case.operation].arguments
    for name, x in case.arguments.items():
        if (isinstance(x, np.ndarray) and x.dtype == np.float64) or declared[name].kind == "number":
            yield name


#: Arrays of which the shape alone matters, biases that shift all scores of a row, or all outputs, and the
#: rate of calls with seeded dropout, which is 0: the dropped weights are those of the implementation.
WITHOUT_EFFECT = {
    *(("rotary_vjp", "features"), ("rotary_frequencies", "features")),
    *((operation, name) for operation in ("alibi_bias", "alibi_bias_vjp") for name in ("query", "key")),
    *(("self_attention", "key_bias"), ("multi_head_attention", "key_bias")),
    *(("multi_head_attention_vjp", "key_bias"), ("multi_head_attention_vjp", "output_bias")),
    *(("seeded_dropout_attention", "dropout_p"), ("seeded_dropout_attention_vjp", "dropout_p")),
    ("alibi_bias_vjp", "slopes"),
}


@pytest.mark.exhaustive
def test_an_argument_rounded_to_float32_is_seen():
    def change(x):
        return x.astype(np.float32).astype(x.dtype) if isinstance(x, np.ndarray) else float(np.float32(x))

    missed = [*unseen(cases_of("every digit of an argument"), real, change)]
    assert {*missed} == WITHOUT_EFFECT


@pytest.mark.exhaustive
def test_an_array_read_without_its_strides_is_seen():
    def change(x):
        buffer = x if x.base is None else x.base
        return buffer.reshape(-1)[: x.size].reshape(x.shape)

    made = cases_of("strides of every argument")
    assert {*unseen(made, lambda case: case.layout, change)} <= WITHOUT_EFFECT


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["bias", "sinks"])
def test_a_finite_number_for_minus_infinity_is_seen(name):
    instead = {"bias": -10000.0, "sinks": 0.0}[name]
    made = cases_of("minus infinity in bias and sinks")
    assert {*made} == {*ATTENDING}
    change = lambda x: np.where(np.isneginf(x), np.array(instead, x.dtype), x)  # noqa: E731  # for one use
    assert [*unseen(made, lambda _: [name], change)] == []


@pytest.mark.parametrize(
    "group", ["strides of every argument", "minus infinity in bias and sinks", "axes that broadcast"]
)
def test_what_changes_no_argument_passes(group):
    for operation, cases in cases_of(group).items():
        assert judge(changed_backend(operation, lambda _: {}), cases[0]).status == "pass", operation


#: Axes without these sizes: pairs of features, rows of tables, bytes of a block, lists that are longer than
#: one, and more new positions than the caches of the other calls hold.
LACKING = {
    1: {(name, own) for name in ("rotary", "rotary_vjp") for own in "ACD"}
    | {("rotary_frequencies", "D"), ("gather_pages", "P"), ("select_keys", "S"), ("dequantize_blocks", "Y")},
    40: {
        ("rotary", "A"),
        ("rotary_vjp", "A"),
        ("append_cache", "N"),
        ("dequantize_blocks", "Y"),
    },
}


@pytest.mark.parametrize("size", LACKING)
def test_each_axis_of_a_companion_has_the_size(size):
    made, lacking = cases_of("companions of sizes"), set()
    for operation in OTHERS:
        calls = (*whole_calls(Draw("any"), operation, "float32"), *(x.arguments for x in made[operation]))
        letters = [bound(operation, call)[0].letters for call in calls]
        shapes = {axis for argument in OPERATIONS[operation].in_order for axis in argument.shape}
        own = {letter for axis in shapes for letter in axis.split("*")} & {*chain(*letters)}
        lacking |= {(operation, letter) for letter in own if all(x.get(letter) != size for x in letters)}
    assert lacking == LACKING[size]


@pytest.mark.exhaustive
def test_a_mask_or_bias_with_an_axis_of_one_that_is_ignored_is_seen():
    def change(x):
        return np.full_like(x, x.dtype == bool) if 1 in x.shape or x.ndim == 1 else x

    names = ("mask", "bias", "dropout_mask")
    for operation, cases in cases_of("axes that broadcast").items():
        for case in cases:
            missed = unseen({operation: [case]}, lambda case: {*names} & {*case.arguments}, change)
            assert [*missed] == [], case.name


def taking_two_dtypes(operation, change):
    """A backend that computes in float64, and changes the arrays of another dtype than the first."""

    def widen(given):
        real = {name: x for name, x in given.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f"}
        own = next(iter(real.values())).dtype
        return {name: (x if x.dtype == own else change(x)).astype(np.float64) for name, x in real.items()}

    return changed_backend(operation, widen)


def test_an_array_of_another_dtype_is_used_at_its_values():
    for operation, cases in cases_of("arrays of two dtypes").items():
        right, wrong = (taking_two_dtypes(operation, change) for change in (np.positive, np.zeros_like))
        for case in cases:
            assert judge(right, case).status == "pass", case.name
        assert any(judge(wrong, case).status == "fail" for case in cases), operation


def test_a_query_that_is_scaled_before_the_key_is_read_is_seen():
    (case,), run = cases_of("shared memory")["attention"], reference.function("attention")

    def scale_in_place(query, key, value):
        query *= 0.5
        output = torch.from_numpy(run(query.numpy(), key.numpy(), value.numpy(), scale=1.0))
        query *= 2
        return output

    assert judge(Backend("wrong", load_library("torch"), scale_in_place), case).status == "fail"


ASKING = {name: form.names("asks") for name, form in OPERATIONS.items() if form.names("asks")}


def test_each_result_is_asked_for_alone_and_none_is():
    seen = {name: set() for name in ASKING}

    def watcher_of(operation):
        @wraps(functions()[operation])
        def watch(*_, **options):
            seen[operation].add(frozenset(name for name in ASKING[operation] if options.get(name) is True))
            raise NotImplementedError("it only watches")

        return watch

    backend = backend_of_operations({name: watcher_of(name) for name in ASKING})
    for item in whole_suite():
        if item.operation in ASKING and not item.refusal:
            judge(backend, item)
    wanted = {name: {frozenset(), *(frozenset({flag}) for flag in flags)} for name, flags in ASKING.items()}
    assert {name: subsets - seen[name] for name, subsets in wanted.items() if subsets - seen[name]} == {}


def wrong_backend(operation, flag):
    """A backend whose output is wrong in calls that do not ask for a result."""
    run = functions()[operation]

    @wraps(run)
    def wrong(*arrays, **options):
        results = run(*arrays, **options)
        if options.get(flag) is True:
            return results
        first, *others = results if isinstance(results, tuple) else (results,)
        return (first + 1, *others) if others else first + 1

    return backend_of_operations({operation: wrong})


@pytest.mark.parametrize(
    ("operation", "flag", "rule"),
    [("attention", "return_lse", "SOFT-4"), ("paged_attention", "return_lse", "PAGE-1")],
)
def test_an_output_that_is_wrong_without_another_result_is_seen(operation, flag, rule):
    (group,) = (group for group in groups_of("notation") if group.name == f"fewer results: {operation}")
    verdicts = [judge(wrong_backend(operation, flag), item) for item in group.items()]
    assert [verdict.status for verdict in verdicts].count("fail") > len(verdicts) / 2
    assert {verdict.rule for verdict in verdicts if verdict.status == "fail"} == {rule}
