"""Functions that are called in another way than the specification's are described by keys alone."""

import doctest
import inspect
import re
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from tests_support import fitted_cases

from attnspec import OPERATIONS, reference
from attnspec.backends import BackendError, Unsupported, describe
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render.text import verdict_text
from attnspec.conformance.suite import find, groups
from attnspec.conformance.verdict import from_json, to_json

THREE = {"query": "q", "key": "k", "value": "v"}


def attend(query, key, value, **options):
    return reference.attention(query, key, value, dtype=query.dtype, **options)


def split(x, heads):
    return np.swapaxes(x.reshape(*x.shape[:2], heads, x.shape[-1] // heads), 1, 2)


def packed(q, k, v, heads, kv_heads, *, causal=False):
    """Three axes: heads and depth share one."""
    assert q.ndim == k.ndim == v.ndim == 3
    found = attend(split(q, heads), split(k, kv_heads), split(v, kv_heads), is_causal=causal)
    return np.swapaxes(found, 1, 2).reshape(*q.shape[:2], heads * (v.shape[-1] // kv_heads))


def of_one_head(q, k, v, mask=None, bias=None, length=None, sink=None, *, causal=False):
    assert q.ndim == k.ndim == v.ndim == 2
    assert mask is None or mask.ndim == 2
    sinks = None if sink is None else np.reshape(sink, (1,))
    options = {"bias": bias, "mask": mask, "key_lengths": length, "is_causal": causal}
    return attend(q[None], k[None], v[None], sinks=sinks, **options)[0]


def of_one_entry(query, key, value, *, mask=None, bias=None, key_lengths=None, return_lse=False, sinks=None):
    assert query.ndim == key.ndim == value.ndim == 3
    assert key_lengths is None or np.ndim(key_lengths) == 0
    options = {"mask": mask, "bias": bias, "key_lengths": key_lengths, "sinks": sinks}
    return attend(query, key, value, return_lse=return_lse, **options)


def with_a_past(query, key, value, past_key=None, past_value=None, *, is_causal=False):
    before = 0 if past_key is None else past_key.shape[-2]
    if before:
        assert past_key.shape[:-2] == key.shape[:-2]
        key, value = np.concatenate([past_key, key], -2), np.concatenate([past_value, value], -2)
    return attend(query, key, value, is_causal=is_causal, query_offset=before)


def with_full_masks(query, key, value, *, attn_mask=None):
    assert attn_mask is None or attn_mask.ndim == 4
    kind = "mask" if attn_mask is None or attn_mask.dtype == bool else "bias"
    assert kind == "mask" or attn_mask.dtype == query.dtype
    return attend(query, key, value, **{kind: attn_mask})


def of_equals(query, key, value, *, is_causal=False, mask=None):
    assert query.shape[-1] == value.shape[-1]
    assert query.shape[:-2] == key.shape[:-2]
    return attend(query, key, value, is_causal=is_causal, mask=mask)


#: What every call passes of an option without a default, in a call of (2, 4, 3, 5) and (2, 2, 7, 5).
PASSED = {
    "scale": 5**-0.5,
    "window": None,
    "is_causal": False,
    "query_positions": np.tile(np.arange(3), (2, 1)),
    "key_positions": np.tile(np.arange(7), (2, 1)),
    "query_lengths": 3,
    "key_lengths": 7,
    "mask": np.ones((2, 4, 3, 7), bool),
    "dropout_mask": np.ones((2, 4, 3, 7), bool),
    "bias": np.zeros((2, 4, 3, 7)),
    "sinks": np.full(4, -np.inf),
}
SEGMENTS = {"query_segment_ids": np.zeros((2, 3)), "key_segment_ids": np.zeros((2, 7))}
OF_CODES = {"key_scales": np.ones((2, 2, 1, 1)), "value_scales": np.ones((2, 2, 1, 1))}


@pytest.mark.parametrize("by", ["required", "given"])
@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        *(("attention", {option: number}) for option, number in PASSED.items()),
        ("attention", SEGMENTS),
        *(("latent_attention", {option: PASSED[option]}) for option in ("query_positions", "mask", "sinks")),
        ("quantized_attention", OF_CODES | {"value_zero_points": np.zeros((2, 2, 1, 1))}),
        ("packed_attention", {"query_positions": np.array([0, 0, 1]), "key_positions": np.arange(7) % 4}),
        ("packed_attention", {"query_lengths": np.array([1, 2]), "key_lengths": np.array([4, 3])}),
    ],
)
def test_what_a_function_needs_has_its_specified_default(operation, expected, by):
    form, random = OPERATIONS[operation], np.random.default_rng(0)
    sizes = {"*B": 2, "Hq": 4, "Hkv": 2, "L": 3, "S": 7, "D": 5, "Dv": 5, "Dr": 2, "Dc": 3}
    arrays = [random.integers(-3, 3, [sizes[x] for x in form.arguments[name].shape]) for name in form.arrays]
    whole = [form.arguments[name].numbers == "integer" for name in form.arrays]
    arrays = [x.astype(np.int8) if codes else x / 2 for x, codes in zip(arrays, whole, strict=True)]
    call = dict(zip(form.arrays, arrays, strict=True))
    if operation == "packed_attention":
        call |= {"query_starts": np.array([0, 1, 3]), "key_starts": np.array([0, 4, 7])}
    passed = {}

    def kernel(**options):
        passed.update(options)
        return reference.function(operation)(**options, dtype=np.float64)

    kind = inspect.Parameter
    default = {} if by == "required" else {"default": 17}
    named = [kind(x, kind.KEYWORD_ONLY, **({} if x in call else default)) for x in (*call, *expected)]
    kernel.__signature__ = inspect.Signature(named)
    keys = {"given": [*expected]} if by == "given" else {"names": {"query": "query"}}
    backend = describe(kernel, operation=operation, **keys)
    results = backend.function(operation)(*arrays, **{x: call[x] for x in call if x not in form.arrays})
    np.testing.assert_array_equal(results, reference.function(operation)(**call))
    for option, number in expected.items():
        np.testing.assert_array_equal(passed[option], number)


def test_an_option_that_nothing_stands_for_cannot_be_given():
    form = OPERATIONS["sharded_attention"]
    names = {x.name: x.name for x in form.arguments.values() if x.required or x.name == "head_shards"}
    with pytest.raises(BackendError, match="a value that stands for their absence, got head_shards; write a"):
        describe(lambda **options: options, operation="sharded_attention", names=names, given=["head_shards"])


def test_an_offset_is_passed_as_positions_to_a_function_that_needs_these():
    def ring(query, key, value, query_positions, key_positions):
        options = {"query_positions": query_positions, "key_positions": key_positions, "is_causal": True}
        return attend(query, key, value, **options)

    backend = describe(ring, always={"is_causal": True}, dtypes=["float32"])
    drawn = fitted_cases(backend.constraints, "MASK-3", "MASK-7")
    found = [judge(backend, item) for item in drawn if item.dtype == "float32"]
    assert [one.case for one in found if one.bad and one.rule not in ("ERR-8", "ERR-18")] == []
    passing = {one.group for one in found if one.status == "pass"}
    assert any("offset" in group for group in passing), passing


def test_scales_are_repeated_to_the_shape_that_a_function_takes():
    shapes = []

    def by_token(query, key_codes, value_codes, *, key_scales=None, value_scales=None, encoding="int8"):
        shapes.append((key_scales.shape, value_scales.shape))
        own = {"key_scales": key_scales, "value_scales": value_scales, "encoding": encoding}
        run = reference.function("quantized_attention")
        return run(query, key_codes, value_codes, **own, dtype=query.dtype)

    backend = describe(by_token, operation="quantized_attention", scales="token", dtypes=["float64"])
    random = np.random.default_rng(0)
    query, codes = random.normal(size=(2, 4, 3, 6)), random.integers(-9, 9, (2, 2, 8, 6)).astype(np.int8)
    run = backend.function("quantized_attention")
    for shape in ((), (1,), (2, 1, 1), (2, 2, 1, 1), (2, 2, 4, 1), (2, 2, 8, 1)):
        options = {"key_scales": random.normal(size=shape)}
        expected = reference.function("quantized_attention")(query, codes, codes, **options)
        np.testing.assert_array_equal(run(query, codes, codes, **options), expected)
    assert set(shapes) == {((2, 2, 8, 1),) * 2}
    with pytest.raises(Unsupported, match=r"one scale for each token, got key_scales of \(2, 2, 1, 6\)"):
        run(query, codes, codes, key_scales=np.ones((2, 2, 1, 6)))
    found = judged(replace(backend, dtypes=("float32",)), ("quantization",))
    assert not any(one.declined for one in found), "calls are drawn with such scales"
    assert sum(one.status == "pass" for one in found) > 20


class Boxed:
    """An array of a library that has nothing but a shape."""

    def __init__(self, array):
        self.array = np.array(array)

    def numpy(self):
        return self.array


def of_boxes(query, key, value, *, mask=None, return_lse=False):
    assert type(query) is type(key) is type(value) is Boxed
    mask = None if mask is None else mask.array
    found = attend(query.array, key.array, value.array, mask=mask, return_lse=return_lse)
    return tuple(map(Boxed, found)) if return_lse else Boxed(found)


PACKED = {"layout": "BS(HD)", "sizes": {"query_heads": "heads", "key_heads": "kv_heads"}}
ONE_HEAD = {"axes": 2, "loop": True, "mask_axes": 2}
ONE_HEAD["names"] = THREE | {"is_causal": "causal", "key_lengths": "length", "sinks": "sink"}
FULL_MASKS = {"names": {"mask": "attn_mask", "bias": "attn_mask"}, "axes": 4, "mask_axes": 4}
BOXES = {"to_library": Boxed, "to_numpy": Boxed.numpy, "library": "numpy"}
#: The function, its keys, the chapters it is asked, and how many float32 cases at least are judged.
DESCRIBED = {
    "packed": (packed, PACKED | {"names": THREE | {"is_causal": "causal"}}, "scores heads notation", 50),
    "one head": (of_one_head, ONE_HEAD, "heads masking softmax", 150),
    "one entry": (of_one_entry, {"axes": 3, "loop": True}, "heads masking softmax", 150),
    "past": (with_a_past, {"past": ["past_key", "past_value"]}, "masking", 20),
    "masks of four axes": (with_full_masks, FULL_MASKS | {"bias_dtype": "query"}, "masking scores", 80),
    "equal": (of_equals, {"heads": "equal", "value_depth": "key"}, "masking notation", 50),
    "boxes": (of_boxes, BOXES, "masking softmax", 80),
}


def judged(backend, chapters):
    chosen = [group for group in groups() if group.chapter in chapters]
    drawn = [item for group in chosen for item in group.items(None, backend.constraints)]
    return [judge(backend, item) for item in drawn if item.dtype == "float32"]


@pytest.mark.parametrize("name", DESCRIBED)
@pytest.mark.sample(5)
def test_a_function_is_judged_by_its_description(name):
    function, keys, chapters, least = DESCRIBED[name]
    backend = describe(function, dtypes=["float32"], **keys)
    assert backend.not_understood == ()
    found = judged(backend, chapters.split())
    bad = [one for one in found if one.bad and one.rule != "ERR-4"]
    assert not bad, [(one.case, one.status, one.rule, one.raised, one.difference) for one in bad[:3]]
    assert sum(one.status == "pass" for one in found) >= least


@pytest.mark.parametrize(
    "change",
    [
        lambda found, heads: np.roll(found, found.shape[-1] // heads, -1),  # the next head
        lambda found, heads: found.reshape(*found.shape[:2], heads, -1).swapaxes(2, 3).reshape(found.shape),
    ],
)
def test_a_wrong_one_fails(change):
    def wrong(q, k, v, heads, kv_heads):
        return change(packed(q, k, v, heads, kv_heads), heads)

    found = judged(describe(wrong, dtypes=["float32"], names=THREE, **PACKED), ("heads",))
    assert "HEAD-1" in {one.rule for one in found if one.bad}


def takes_anything(query, key, value, *, scale=1.0, mask=None, bias=None, key_lengths=None, sinks=None):
    """Refuses nothing."""
    return np.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)


def refuses_no_depth(query, key, value, *, scale):
    if not query.shape[-1] or not value.shape[-1]:
        raise ValueError("query, key, value: expected a depth of 1 or more, got 0")
    return attend(query, key, value, scale=scale)


@pytest.mark.parametrize("keys", [{}, {"axes": 4}, {"layout": "BSHD"}, {"axes": 3, "loop": True}])
def test_a_depth_of_zero_is_refused_by_the_function_and_not_by_a_given_scale(keys):
    names = [f"errors-refused-depth-of-0{of}-1-float32" for of in ("", "-throughout", "-of-the-values")]
    for function, status in ((takes_anything, "fail"), (refuses_no_depth, "pass")):
        backend = describe(function, dtypes=["float32"], given=["scale"], **keys)
        assert [judge(backend, find(name)).status for name in names] == [status] * 3


ENTRY = {"axes": 3, "loop": True}
BOTH = {"names": {"mask": "mask", "bias": "mask"}, "ignore": ["bias"]}


@pytest.mark.parametrize(
    ("keys", "cases"),
    [
        (ENTRY, "mask-of-too-many-axes mask-of-more-batch key-lengths-for-too-many-entries"),
        (ENTRY | {"axes": 2}, "sinks-with-an-axis-less sinks-for-too-many-heads"),
        ({"mask": "ignore"}, "mask-of-real-numbers"),
        (BOTH, "mask-of-real-numbers mask-of-integers bias-of-booleans bias-of-integers"),
    ],
)
def test_what_a_description_cannot_pass_on_is_not_refused_by_the_function(keys, cases):
    backend = describe(takes_anything, dtypes=["float32"], **keys)
    found = [judge(backend, find(f"errors-refused-{case}-1-float32")) for case in cases.split()]
    assert {(one.status, one.declined) for one in found} == {("unsupported", True)}


def test_an_offset_that_is_no_past_is_declined():
    backend = describe(with_a_past, past=["past_key", "past_value"])
    one = np.ones((2, 3))
    for offset in (1, -1, np.array([0])):
        with pytest.raises(Unsupported, match="takes an offset as past keys: expected 0 for these sizes"):
            backend.attention(one, one, one, is_causal=True, query_offset=offset)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"loop": True}, "loop: expected axes beside it, got none"),
        ({"names": {"colour": "q"}}, "names: expected canonical names (query, "),
        ({"names": {"bias": "alibi"}}, "expected a function with alibi, got query, key, value"),
        ({"layout": "SHBD"}, "layout: expected BHSD or BSHD or BS(HD) or SBHD, got 'SHBD'"),
        (
            {"scales": "row", "operation": "quantized_attention"},
            "or number or flat-shared or flat-head or flat-token, got 'row'",
        ),
        ({"scales": "token"}, "scales: expected an operation with scales, got attention"),
        ({"encoding": "e4m3fn"}, "encoding: expected an operation over codes, got attention"),
        ({"codes": "float8"}, "codes: expected an operation over codes, got attention"),
        (
            {"encoding": "e4m3", "operation": "dequantize"},
            "encoding: expected int8 or e4m3fn or e5m2 or e4m3fnuz or e5m2fnuz or e2m1fn or e8m0fnu, got",
        ),
        ({"codes": "int4", "operation": "dequantize"}, "codes: expected float8 or int8 or uint8, got 'int4'"),
        ({"inverse": ["quick"]}, "inverse: expected parameters of it, got quick; it has query, key, value"),
        ({"fixed": {"quick": 1}}, "fixed: expected parameters of it, got quick; it has query, key, value"),
        ({"mask": "hide"}, "mask: expected attend or ignore or add, got 'hide'"),
        ({"returns": ("lse",)}, "returns: expected output, then some of lse, weights"),
        ({"axes": 2}, "axes: expected 3 or 4, got 2"),
        ({"axes": 3, "layout": "BS(HD)"}, "axes: expected 4 with the layout BS(HD), got 3"),
        ({"sizes": {"heads": "h"}}, "sizes: expected some of batch, query_heads, key_heads, queries, keys,"),
        ({"sizes": {"depth": "head_dim"}}, "expected a function with head_dim, got query, key, value"),
        ({"past": ["past_key"]}, "past: expected"),
        ({"mask_axes": 1}, "mask_axes: expected 2 or 3 or 4 or 5, got 1"),
        ({"value_depth": "query"}, "value_depth: expected any or key, got 'query'"),
        ({"bias_dtype": "key"}, "bias_dtype: expected any or query, got 'key'"),
        ({"library": "no-such-package"}, "library: expected an installed package, got 'no-such-package'"),
        ({"to_library": 3}, "to_library: expected a function, got int"),
        ({"to_numpy": "numpy:nothing"}, "nothing"),
        ({"to_library": Boxed, "array": "array_api_strict"}, "to_library: expected array = numpy beside it"),
    ],
)
def test_a_description_that_cannot_be_used(keys, message):
    def plain(query, key, value):
        return value

    with pytest.raises(BackendError, match=re.escape(message)):
        describe(plain, **keys)


def test_a_converted_function_has_the_version_of_its_library():
    backend = describe(of_boxes, **BOXES | {"library": "click"})
    assert (backend.library, backend.version) == ("click", version("click"))
    assert backend.to_numpy(backend.to_library(np.ones(2))).tolist() == [1, 1]
    page = Path(__file__).parent.parent / "conformance" / "configuration.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted > 5
    assert not found.failed


def boxed_if_not_flat(array):
    if array.ndim == 2:
        raise RuntimeError("no matrices")
    return Boxed(array)


@pytest.mark.parametrize(
    ("conversions", "told", "place"),
    [
        (BOXES | {"to_library": boxed_if_not_flat}, "to_library of query", "boxed_if_not_flat"),
        ({"to_library": Boxed, "to_numpy": lambda box: box.tensor}, "to_numpy of the result", "<lambda>"),
    ],
)
def test_an_error_of_a_conversion_is_not_one_of_the_function(conversions, told, place):
    backend = describe(of_boxes, dtypes=["float32"], **conversions)
    verdict = judge(backend, find("softmax-002-float32"))
    assert verdict.status == "error"
    assert (verdict.raised.conversion, verdict.raised.function) == (told, place)
    assert Path(verdict.raised.file) == Path(__file__)
    assert from_json(to_json(verdict)) == verdict
    title, _, raised, at, *_ = verdict_text(verdict).splitlines()
    assert title == "a conversion of the adapter raises, not the function"
    assert raised.startswith(f"the adapter's conversion {told} raised ")
    assert at == f"at {__file__}, line {verdict.raised.line}, in {place}"


def test_a_conversion_of_compiled_code_has_no_line_of_the_function():
    backend = describe(of_boxes, dtypes=["float32"], to_library=float, to_numpy=Boxed.numpy)
    raised = judge(backend, find("softmax-002-float32")).raised
    assert (raised.conversion, raised.type, raised.file) == ("to_library of query", "TypeError", "")

    def converted(array):
        if not array.shape[-1]:
            raise ValueError("query: expected no empty axis")
        return array

    backend = describe(takes_anything, dtypes=["float32"], to_library=converted)
    found = judge(backend, find("errors-refused-depth-of-0-1-float32"))
    assert found.status == "unsupported"
    assert found.reason == "to_library of query raised, so takes_anything was not called"
