"""Calls that must be rejected are, by name on every library; unusual valid ones are accepted."""

import re
from itertools import chain

import numpy as np
import pytest
from tests_support import run_operation, whole_suite

from attnspec import OPERATIONS, find_rule, reference
from attnspec.backends import load
from attnspec.conformance import check
from attnspec.conformance.suite.faults import fitting
from attnspec.conformance.suite.malformed import every, further, malformed, mixed_dtypes
from attnspec.conformance.suite.stacks import refusals
from attnspec.operations.operation import name_of, primal
from attnspec.sizes import misfits

EVERY = {call.name: call for call in every()}
STACKS = [name for name, form in OPERATIONS.items() if form.stacked]
MIXED = {call.name: call for name in OPERATIONS for call in mixed_dtypes(name, "float64", "float32")}


def test_each_form_refuses_by_each_rule_of_the_arguments_of_attention():
    """What attention must refuse is asked of each form once for each rule."""
    asked = {(call.operation, call.rule) for call in malformed()}
    of_attention = {(call.argument, call.rule) for call in malformed() if call.operation == "attention"}
    forms = [name for name, form in OPERATIONS.items() if form.reduces == "attention" and not form.stacked]
    assert len(forms) > 8
    for name in forms:
        arguments = OPERATIONS[name].arguments
        shared = {rule for argument, rule in of_attention if argument in arguments}
        same = {rule for rule in shared for own in arguments.values() if rule in own.refusals.values()}
        assert same - {rule for operation, rule in asked if operation == name} == set(), name


def is_of_forward(call):
    return call.argument in OPERATIONS[primal(call.operation)].arguments and call.operation.endswith("_vjp")


def test_gradients_refuse_by_each_rule_of_their_operation():
    for name in (name for name, form in OPERATIONS.items() if name.endswith("_vjp") and not form.stacked):
        shared = OPERATIONS[name].arguments.keys() & OPERATIONS[primal(name)].arguments.keys()
        of_operation = [
            call for call in malformed() if call.operation == primal(name) and call.argument in shared
        ]
        rules = {call.rule for call in of_operation if find_rule(call.rule).level == "MUST"}
        assert rules <= {call.rule for call in malformed() if call.operation == name}, name


def test_stacks_refuse_by_each_rule_of_each_argument():
    """Pages and codes of an array stand for it."""
    asked = [call for call in EVERY.values() if call.asked and call.operation in STACKS]
    chosen = refusals()
    met, wanted = (
        {(re.sub("_(codes|pages)$", "", call.argument), call.rule) for call in calls}
        for calls in (chain(*chosen.values()), asked)
    )
    assert met == wanted
    assert all(len({call.rule for call in calls}) >= 3 for calls in chosen.values())


def test_companions_refuse_integers_in_each_array_of_their_own():
    calls = [*malformed(), *chain(*further().values())]
    asked = {(call.operation, call.argument) for call in calls if call.rule == "ERR-2"}
    for name, form in OPERATIONS.items():
        real = {own for own, argument in form.arguments.items() if argument.refusals.get("dtype") == "ERR-2"}
        other = form.reduces if name == primal(name) else primal(name)
        shared = OPERATIONS[other].arguments if other else {}
        assert form.stacked or {(name, own) for own in real - {*shared}} <= asked, name


OTHERS = ("torch-portable", "jax-portable", "strict-portable", "dask-portable")
#: One of each way in which an argument is looked at.
HANDFUL = (
    "query of integers",
    "value of more keys",
    "bias of more keys",
    "mask of real numbers",
    "offsets of booleans",
    "one key length past the keys",
    "ids of keys of booleans",
    "sinks of integers",
    "lses of more parts in merge_partials",
    "offsets for each query in rotary",
)
#: No arrays where arrays are wanted: NumPy's functions make them of it, those of the Array API do not.
NO_ARRAYS = (
    ("attention", "query", "ERR-2", [[1.0]]),
    ("attention", "value", "ERR-2", [[1.0]]),
    ("attention", "bias", "ERR-2", [0.0]),
    ("attention", "bias", "ERR-2", 0.0),
    ("attention", "mask", "ERR-4", [True]),
    ("attention", "mask", "ERR-4", True),
    ("attention", "query_offset", "ERR-8", [1, 1]),
    ("attention", "query_offset", "ERR-8", (1, 1)),
    ("attention", "key_lengths", "ERR-8", [1, 1]),
    ("attention", "sinks", "ERR-11", [0.0] * 4),
    ("attention", "sinks", "ERR-11", 0.0),
    ("projection", "weight", "ERR-2", [[1.0]] * 5),
    ("split_heads", "features", "ERR-2", [[1.0]]),
    ("gather_pages", "block_table", "ERR-16", [0]),
    ("gather_pages", "block_table", "ERR-16", 0),
    ("rotary", "features", "ERR-2", [[1.0, 2.0]]),
    ("rotary", "features", "ERR-2", 1.0),
)


def of_reference(operation, arguments):
    given = dict(arguments)
    arrays = [given.pop(name) for name in OPERATIONS[operation].arrays]
    return reference.function(operation)(*arrays, **given)


def refusal(run, call):
    """What is said of a call that is refused, in one line that names the argument at fault."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is looked at here
        run(call.operation, call.arguments)
    message = str(caught.value)
    assert re.match(rf"({'|'.join(call.names)}): expected ", message)
    assert ", got " in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name not in STACKS])
def test_the_reference_refuses_it_by_name_and_rule(operation):
    """And the portable source, on NumPy, by name."""
    refuse_all(operation)


@pytest.mark.parametrize("operation", STACKS)
@pytest.mark.sample(2)
def test_a_stack_refuses_it_by_name_and_rule(operation):
    refuse_all(operation)


def refuse_all(operation):
    backend = load("numpy-portable")
    for name, call in (EVERY | MIXED).items():
        if call.operation == operation:
            assert refusal(of_reference, call).endswith(f"[{call.rule}]"), name
            refusal(lambda *call: run_operation(backend, *call), call)


@pytest.mark.parametrize("library", OTHERS)
@pytest.mark.parametrize("name", [*HANDFUL, next(iter(MIXED))])
def test_every_library_refuses_it(name, library):
    backend = load(library)
    refusal(lambda *call: run_operation(backend, *call), (EVERY | MIXED)[name])


@pytest.mark.parametrize(("operation", "argument", "rule", "value"), NO_ARRAYS)
@pytest.mark.sample(30)
def test_what_is_no_array_is_refused(operation, argument, rule, value):
    arguments = fitting(operation) | {argument: value}
    with pytest.raises(ValueError, match=rf"^{argument}: expected .*\[{rule}]$"):
        run_operation(load("numpy-portable"), operation, arguments)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_calls_that_they_change_fit(operation):
    assert misfits(operation, fitting(operation)) == []
    codes = [x for name, x in fitting(operation).items() if name.endswith(("codes", "_pages"))]
    assert all(x.dtype.kind == "f" or x.dtype.itemsize == 1 for x in codes), "a kernel of int8 takes no other"
    of_reference(operation, fitting(operation))
    for name in ("numpy-portable", *OTHERS):
        backend = load(name)
        if backend.function(operation):
            run_operation(backend, operation, fitting(operation))


def test_the_data_tell_that_they_do_not_fit():
    """But for an odd depth, for what depends on a word or a count, and for rules about two arguments."""
    every = EVERY | MIXED
    fit = {name: call for name, call in every.items() if not misfits(call.operation, call.arguments)}
    fit = {name: call for name, call in fit.items() if not name.partition(" in ")[0].endswith("as nothing")}
    blocks = {f"listed block {place} in block_sparse_attention" for place in ("past the last", "below 0")}
    by_word = ("packed bytes of another format", "points of floating-point codes")
    single = {name: call for name, call in fit.items() if call.operation not in STACKS}
    other = {name for name, call in single.items() if call.rule not in {"POS-13", "POS-25", "QUANT-15"}}
    named = {name for name in other if any(words in name for words in by_word)}
    groups = "heads of two groups in one part in sharded_attention"
    odd = {"depth that is odd", "depth that is odd in rotary_frequencies"}
    assert other - named == {*blocks, groups, *odd}
    assert len(named) == 4


def test_every_argument_is_malformed_once_by_a_rule_that_asks_for_it():
    # But for those that an operation has in common with the operation itself.
    known = {
        (operation, name)
        for operation, form in OPERATIONS.items()
        for name in form.arguments
        if operation == primal(operation) or name not in OPERATIONS[primal(operation)].arguments
    }
    own = [call for call in EVERY.values() if not is_of_forward(call)]
    assert {(call.operation, call.argument) for call in own} == known
    assert len({call.name for call in every()}) == len(every())
    # And each rule that asks for a refusal has a call, but for that of what cannot be honoured.
    asking = {call.rule for call in malformed()} | {call.rule for call in MIXED.values()}
    sentences = {rule: find_rule(rule).sentence for rule in asking}
    silent = {rule for rule, sentence in sentences.items() if "raise an error" not in sentence}
    assert silent == {"ERR-1"}, "arrays of different dtypes are refused or taken at their value"
    from attnspec import rules

    wanted = {rule.id for rule in rules() if "raise an error" in rule.sentence}
    assert wanted - asking == {"ERR-19"}, "it lets a call return, and a relation shows what that depends on"


def operations_in(rule):
    """The operations that the sentence of a rule names, by their names or by what defines their results."""
    named = {*re.findall(r"`(\w+)`", rule.sentence)} & {*OPERATIONS}
    if "whose result is defined as one of `attention`" in rule.sentence:
        named |= {name for name, form in OPERATIONS.items() if form.reduces == "attention" or form.layers}
        named |= {"low_precision_attention"}
    return named


def test_a_refusal_is_asked_of_the_operations_that_its_rule_names():
    # A rule that names operations is about them alone.
    wrong = set()
    for item in whole_suite():
        rule = find_rule(item.rules[0])
        named = operations_in(rule)
        forms = OPERATIONS[item.operation].layers if "STACK-1" in item.rules else ()
        own = {item.operation, primal(item.operation), *(name_of([form]) for form in forms)}
        if item.refusal and item.must_raise and named and not own & named:
            wrong.add((rule.id, item.operation))
    assert wrong == set()
    named = operations_in(find_rule("ERR-5"))
    assert {primal(call.operation) for call in malformed() if call.rule == "ERR-5"} <= named


def test_names_of_arrays_and_integers_of_libraries():
    torch = load("torch-portable")
    ours, one = torch.to_library(np.ones((2, 2))), np.ones((2, 2))
    with pytest.raises(ValueError, match=r"^key: expected an array of .*torch, got one of .*numpy \[ERR-2]$"):
        torch.attention(ours, one, ours)
    with pytest.raises(ValueError, match=r"^mask: expected an array of .*torch, got .*numpy \[ERR-4]$"):
        torch.attention(ours, ours, ours, mask=one > 0)
    attention = load("numpy-portable").attention
    arrays = [np.sin(np.arange(12.0)).reshape(4, 3)] * 3
    options = {"is_causal": True, "query_offset": 1, "window": (1, 0), "key_lengths": 3, "scale": 2}
    of_numpy = options | {
        "query_offset": np.int32(1),
        "window": (np.uint8(1), np.int64(0)),
        "scale": np.int64(2),
    }
    assert (attention(*arrays, **options) == attention(*arrays, **options | of_numpy)).all()
    one = np.ones((3, 2))
    everything = attention(one, one, one)
    assert (attention(one, one, one, window=(10**30, 10**30)) == everything).all()
    assert (attention(one, one, one, query_offset=-(2**62), is_causal=True) == 0).all()
    with pytest.raises(ValueError, match=r"^query_offset: expected .*, got 10{21} \[ERR-8]$"):
        attention(one, one, one, query_offset=10**21, is_causal=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_softcap_beyond_the_dtype(dtype):
    scores = load("numpy-portable").companions["scores"]
    query, key = np.array([[1.0, 2.0]], dtype), np.array([[3.0, -1.0], [0.0, 0.0]], dtype)
    assert scores(query, key, scale=1.0, softcap=1e300).tolist() == [[1.0, 0.0]]
    assert float(np.abs(scores(query, key, scale=1.0, softcap=1e-300)).max()) < 1e-37


@pytest.mark.parametrize("name", ["numpy-portable", "torch-portable", "strict-portable"])
def test_a_bias_and_sinks_in_float64_are_taken_at_their_value(name):
    """2 ** 24 + 1 is no number of float32, and 1e300 none that it could hold."""
    backend = load(name)
    zero, value = np.zeros((1, 1), np.float32), np.array([[1.0], [3.0]], np.float32)
    key = np.zeros((2, 1), np.float32)
    options = {"bias": np.array([2.0**24 + 1, 2.0**24]), "sinks": np.array([-1e300])}
    arguments = {"query": zero, "key": key, "value": value, **options, "return_weights": True}
    output, weights = map(backend.to_numpy, run_operation(backend, "attention", arguments))
    share = 1 / (1 + np.exp(-1))
    assert np.allclose(weights, [[share, 1 - share]], rtol=1e-6)
    assert np.allclose(output, [[share + 3 * (1 - share)]], rtol=1e-6)
    assert output.dtype == np.float32


@pytest.mark.parametrize("name", ["numpy-portable", *OTHERS])
def test_a_row_that_is_spoilt_spoils_no_other(name):
    """Four queries: one with a NaN score, one that does not see it, one with nothing to see, one dropped."""
    backend = load(name)
    query, key = np.ones((4, 1)), np.array([[np.nan], [1.0], [2.0]])
    value = np.array([[np.inf, 1.0], [5.0, np.nan], [7.0, 2.0]])
    mask = np.array([[True, False, True], [False, False, True], [False] * 3, [True] * 3])
    kept = np.array([True, True, True, False])[:, None]
    arguments = {"query": query, "key": key, "value": value, "mask": mask}
    arguments |= {"dropout_mask": kept, "return_lse": True}
    output, lse = map(backend.to_numpy, run_operation(backend, "attention", arguments))
    assert np.array_equal(output, [[np.nan] * 2, [7.0, 2.0], [0.0] * 2, [np.nan] * 2], equal_nan=True)
    assert np.array_equal(lse, [np.nan, 2.0, -np.inf, np.nan], equal_nan=True)


def test_a_malformed_call_that_returns_another_result_is_accepted():
    """A flag of return_lse that is a word makes a kernel return two results, which is no error."""

    def attend(query, key, value, *, query_block, key_block, block_mask=None, return_lse=False):
        options = {"query_block": query_block, "key_block": key_block, "block_mask": block_mask}
        results = reference.block_sparse_attention(
            query, key, value, **options, return_lse=True, dtype=query.dtype
        )
        return results if return_lse else results[0]

    found = check(attend, operation="block_sparse_attention", rules=["ERR-16"], dtypes=["float32"])
    words = [x for x in found.report.results.verdicts if x.reason.startswith("expected an error, got ")]
    assert found.good, found.text
    assert any(x.code == "not refused" and "got tuple" in x.reason for x in words)
    assert {*words} <= {*found.report.accepted}
