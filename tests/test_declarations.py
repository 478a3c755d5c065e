"""A wrong library is not excused by what its backend declares, and no adapter refuses a call by itself."""

import ast
import importlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests_support import about, installed_backends

from attnspec.backends import load
from attnspec.backends.outcome import NoArray, Unwritten, every_element
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.run.cases import Cases
from attnspec.reference import attention
from tools.declarations import RESULTS, cases_of, try_mutants, with_results

ADAPTERS = Path(__file__).parents[1] / "backends" / "adapters"


BACKENDS = dict(installed_backends())
DECLARED = [
    (name, deviation)
    for name, backend in BACKENDS.items()
    if list(RESULTS.glob(f"{name}-[0-9]*.xz"))
    for deviation in backend.deviations
]


@pytest.mark.parametrize(("name", "deviation"), DECLARED, ids=lambda thing: getattr(thing, "id", thing))
@pytest.mark.sample(8)
def test_no_wrong_result_is_taken_for_a_deviation(name, deviation):
    backend, finder = BACKENDS[name], Cases()
    known = cases_of(name, 2).get(deviation.id, ())
    if not known:
        pytest.skip("no stored run shows it")
    row = try_mutants(backend, deviation, [finder.find(*case, backend.constraints) for case in known])
    free = any(isinstance(outcome, Unwritten) for outcome in deviation.outcomes)
    assert row.survived == () or free or deviation.id in WEAK, row
    no_array = any(isinstance(outcome, NoArray) for outcome in deviation.outcomes)
    assert row.tried or no_array, "no wrong result was tried"


#: Deviations that a wrong result can still show: the results are whole numbers or booleans, to which the
#: right numbers are rounded in an unknown direction, or a budget is larger than the numbers. That of 4,096
#: keys in bfloat16 and the class `storage`, which ONNX's evaluator declares, is 32 times the results of
#: NUM-6.
WEAK = (
    "ERR-2 keras/not_checked",
    "ERR-2 jax/not_floating_point",
    "ERR-2 transformers/eager_not_checked",
    "SOFT-6 torch/flex_lse_of_lowest",
    "NUM-6 onnx/half_sums",
)


def test_free_memory_is_declared_only_where_a_library_reads_or_leaves_it():
    sources = {
        deviation.source
        for backend in BACKENDS.values()
        for deviation in backend.deviations
        for outcome in deviation.outcomes
        if isinstance(outcome, Unwritten) and outcome.where is every_element
    }
    assert sources <= {
        "torch/flex_compiled_batch_of_value",
        "torch/flex_compiled_value_length",
        "torch/flex_compiled_heads_of_value",
        "openvino/no_keys",
        "openvino/depth_zero",
        "executorch/mask_and_causal",
        "executorch/not_checked",
        "tvm/no_keys",
        "ncnn/misfit",
    }


def off(arguments, name, change):
    """Compute another call by the reference, in place of the result."""
    wide = {
        key: x.astype(np.float64) if hasattr(x, "dtype") and x.dtype.name.endswith(("16", "32")) else x
        for key, x in change(dict(arguments)).items()
        if not key.startswith("return_")
    }
    with np.errstate(all="ignore"):
        return {"output": np.asarray(attention(**wide)).astype(arguments["query"].dtype)}


def zero_if(condition):
    """Make everything 0 if a condition on the arguments holds."""
    return lambda a, found: {key: np.zeros_like(x) for key, x in found.items()} if condition(a) else found


def drop(*names):
    """Ignore some arguments beside causality."""

    def change(arguments, outputs):
        return off(arguments, "output", lambda a: {key: x for key, x in a.items() if key not in names})

    return change


def is_causal(arguments):
    return bool(arguments.get("is_causal"))


def shifted(arguments, outputs):
    """Align causality one key too early for every query."""
    if not is_causal(arguments):
        return outputs
    keys = arguments["key"].shape[-2]
    mask = np.tri(arguments["query"].shape[-2], keys, -1, dtype=bool)
    mask[:, 0] = mask[-1] = True
    return off(arguments, "output", lambda a: {**a, "mask": mask & a.get("mask", True), "is_causal": False})


def of(name, factor):
    return lambda _, outputs: {
        key: (x * factor).astype(x.dtype) if key == name else x for key, x in outputs.items()
    }


def each(change):
    """Change every output."""
    return lambda _, outputs: {name: change(x) for name, x in outputs.items()}


NAN = each(lambda x: np.full_like(x, np.nan))
TILED = each(lambda x: x[..., ::-1, :, :].copy() * np.float32(1.5))


def positive_scale(arguments, outputs):
    return off(arguments, "output", lambda a: {**a, "scale": abs(a["scale"])})


def has(what, *names):
    return lambda a: any(what(a[name].astype(np.float64)).any() for name in names)


MASKLESS = drop("mask", "is_causal")
ZERO_AT_INFINITY = zero_if(has(np.isinf, "query", "key"))
#: Bugs in a library inside of what its backend declares: the backend, the source of the deviation, the bug.
BUGS = {
    "float64 doubled": ("keras-numpy", "keras/float64", of("output", 2)),
    "a NaN query zeroes all rows": ("torch-flash", "torch/flash_nan_query", zero_if(has(np.isnan, "query"))),
    "a negative scale is its absolute value": ("torch-flash", "torch/flash_causal_scale", positive_scale),
    "causality is off by one": ("onnxruntime-mha", "onnxruntime/mha_causal_last", shifted),
    "the mask is dropped too": ("transformers-sdpa", "transformers/sdpa_mask_and_causal", MASKLESS),
    "an infinity zeroes all": ("ggml-flash", "ggml/infinite_key", ZERO_AT_INFINITY),
    "the lse has base 2": ("jax-nn", "jax/lse_dtype", of("lse", 1 / np.log(2))),
    "the value heads are tiled": ("torch-math", "torch/heads_of_value", TILED),
    "gradients of keys are halved": ("torch-sdpa", "torch/flash_gradient_sums", of("d_key", 0.5)),
    "an infinite score zeroes all": ("torch-sdpa", "torch/flash_half_infinity", ZERO_AT_INFINITY),
    "a masked NaN makes all NaN": ("torch-math", "torch/masked_nan_query", NAN),
    "no key makes all NaN": ("jax-nn", "jax/empty_row_gradient_bias", NAN),
    "a softcap of 0 gives 0": ("onnx-reference", "onnx/softcap_not_positive", of("output", 0)),
    "the scale is rounded more": ("onnx-reference", "onnx/float64_scale", of("output", 1 + 1e-5)),
    "a depth of 0 gives 0": ("torch-math", "torch/depth_zero", of("output", 0)),
    "dropout keeps twice as much": ("torch-math", "torch/dropout_p_not_checked", of("output", 2)),
    "the lse of lowest scores is 0": ("torch-flex", "torch/flex_lse_of_lowest", of("lse", 0)),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_inside_of_a_declaration_is_seen(bug):
    name, source, change = BUGS[bug]
    if name not in BACKENDS:
        pytest.skip(f"{name} is not installed")
    backend = BACKENDS[name]
    (deviation,) = (each for each in backend.deviations if each.source == source)
    mutant, differ = with_results(backend, change)
    known = cases_of(name, 4)[deviation.id]
    for case in known:
        found = judge(mutant, Cases().find(*case, backend.constraints))
        assert found.bad or not any(differ), (case, found)
        if any(differ):
            return
    pytest.fail("no case has another result")


@pytest.mark.parametrize("path", sorted(ADAPTERS.rglob("*.py")), ids=lambda path: path.stem)
def test_an_adapter_raises_only_that_it_does_not_offer_a_call(path):
    """An exception of any other type would count as a refusal by the library."""
    found = [node.exc for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise)]
    raised = [each for each in found if each is not None]  # `raise` alone passes on that of the library
    names = {node.func.id for node in raised if isinstance(node, ast.Call)}
    assert names <= {"Unsupported", "BackendError"}
    assert all(isinstance(node, ast.Call) for node in raised)


def accepting(query, key, value, *_, **__):
    """Accept every call: the output has the rows of the queries and the features of the values."""
    package = type(query).__module__.split(".")[0]
    zeros = importlib.import_module("jax.numpy" if package.startswith("jax") else package).zeros
    return zeros((*query.shape[:-1], value.shape[-1]))


def accepting_model(_, inputs):
    """Accept every model of a call of attention."""
    query, value = (inputs.get(short, inputs.get(long)) for short, long in (("Q", "query"), ("V", "value")))
    return [np.zeros((*query.shape[:-1], value.shape[-1]), np.float32)] * 3


def accepting_module(*_, **__):
    """Accept every call of a compiled module or function."""
    return lambda *arrays: SimpleNamespace(to_host=lambda: accepting(*arrays[:3]))


#: What an adapter calls of its library, and what accepts every call instead.
LIBRARY = {
    **{name: {"torch.sdpa:_SDPA": accepting} for name in ("torch-sdpa", "torch-math", "torch-flash")},
    "torch-flex": {"torch.flex:flex_attention": lambda *arrays, **_: accepting(*arrays)},
    "torch-mha": {
        "torch.mha:_run": lambda _module, arrays, *_, **__: (accepting(*arrays), None),
        "torch.mha:_set": lambda *_, **__: None,
        "torch.mha:_module": lambda *_: None,
    },
    "jax-nn": {"jax:_eager": accepting},
    "equinox-mha": {"equinox:_module": lambda *_: accepting},
    "iree-attention": {"iree:_function": accepting_module},
    "onnxruntime-attention": {"onnxruntime:run": accepting_model},
    "onnxruntime-mha": {"onnxruntime_own:run": accepting_model},
    "diffusers-native": {"diffusers:dispatch_attention_fn": accepting},
}


@pytest.mark.parametrize("name", LIBRARY)
def test_a_library_that_accepts_everything_refuses_nothing(name, monkeypatch):
    """Else the adapter refuses a call, and the refusal counts as a pass."""
    for place, function in LIBRARY[name].items():
        module, attribute = place.split(":")
        adapter = pytest.importorskip(f"attnspec.backends.adapters.{module}", exc_type=ImportError)
        monkeypatch.setattr(adapter, attribute, function)
    backend = replace(load(name), deviations=(), dialect={}, companions={})
    refused = [
        case
        for case in about(*REFUSALS)
        if getattr(case, "must_raise", False) and case.operation == "attention"
    ]
    passed = [case.name for case in refused if judge(backend, case).status == "pass"]
    assert len(refused) > 50
    assert passed == []


REFUSALS = ["ERR-1", "ERR-2", "ERR-4", "ERR-5", "ERR-6", "SHAPE-6", "HEAD-2", "ERR-15"]
