"""ONNX's operator Attention: a model of a call, and the reference evaluator, which runs a node in NumPy."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from attnspec.backends.adapters.conditions import (
    OF_NAN,
    OF_NO_DEPTH,
    OF_OTHER_TYPES,
    Arguments,
    has_empty_axis,
    may_disallow,
    with_more_axes,
)
from attnspec.backends.adapters.deviations import mask_overflow, other_heads_of_value, repeated_batch
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import Bound, OtherCall, Raises, Special
from attnspec.backends.user.function import describe

_INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
_ARRAYS = {"query": "Q", "key": "K", "value": "V"}
#: The newest intermediate representation that the runtimes of these operator sets read.
_IR = {23: 11, 24: 11, 25: 12}
_OPTIONS = ("scale", "softcap", "bias", "mask", "is_causal", "query_offset", "return_weights")
#: The options that each operator set can express, some of them with some values only.
OPTIONS = {23: _OPTIONS, 24: (*_OPTIONS, "key_lengths"), 25: (*_OPTIONS, "key_lengths", "window")}

#: Runs a model: takes it and its inputs, and returns its outputs.
Runner = Callable[[onnx.ModelProto, dict[str, NDArray[Any]]], Sequence[Any]]


def onnx_attention(run: Runner, opset: int) -> Callable[..., Any]:
    """Make a function with the canonical arguments that runs each call as a model."""

    def attention(query: Any, key: Any, value: Any, **options: Any) -> Any:
        arguments = {"query": query, "key": key, "value": value, **options}
        model, inputs = onnx_model(arguments, opset=opset)
        outputs = run(model, inputs)
        return tuple(outputs) if options.get("return_weights") else outputs[0]

    kind = inspect.Parameter
    attention.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # read by inspect
        [kind(array, kind.POSITIONAL_OR_KEYWORD) for array in _ARRAYS]
        + [kind(option, kind.KEYWORD_ONLY, default=None) for option in OPTIONS[opset]]
    )
    return attention


def onnx_model(
    arguments: Mapping[str, Any], *, opset: int = 23, whole_masks: bool = False
) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """Make a model of a call of attention.

    An argument that the node cannot express is declined, so a backend that runs the model reports it as
    unsupported. The default scale stays the default of the node.

    Notes
    -----
    The translation is that of ``spec/dialects.md``, section ONNX Attention, of ONNX 1.23.2.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    inputs = {own: given.pop(name) for name, own in _ARRAYS.items()}
    attributes: dict[str, Any] = {}
    if given.pop("is_causal", False):
        attributes["is_causal"] = 1
    for name in ("scale", "softcap"):
        if name in given:
            attributes[name] = float(given.pop(name))
    if attributes.get("scale", 0) < 0:
        raise Unsupported("the node Attention takes the square root of the scale")
    outputs = ["Y", *(["qk_matmul_output"] if given.pop("return_weights", False) else [])]
    if len(outputs) > 1:
        attributes["qk_matmul_output_mode"] = 3
    _set_window(given, attributes, opset)
    _set_positions(given, attributes, inputs, opset)
    _set_mask(given, inputs)
    if "attn_mask" in inputs:
        mask, queries, keys = inputs["attn_mask"], arguments["query"].shape[-2], arguments["key"].shape[-2]
        # Since opset 24 a short last axis is extended by keys that are disallowed, also one of size 1.
        sizes = (queries if whole_masks else 1, keys if whole_masks or opset >= 24 else 1)
        inputs["attn_mask"] = _repeat(mask.reshape((1,) * (4 - mask.ndim) + mask.shape), sizes)
    if given:
        raise Unsupported(f"the node Attention of opset {opset} has no {', '.join(given)}")
    return _model(attributes, inputs, outputs, opset), inputs


def _set_window(given: dict[str, Any], attributes: dict[str, Any], opset: int) -> None:
    window = given.pop("window", None)
    if window is None:
        return
    if opset < 25:
        raise Unsupported(f"the node Attention of opset {opset} has no window")
    for bound in window:
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, Integral) or bound < 0):
            raise Unsupported(f"window: expected integers from 0 on, or None for no bound, got {bound!r}")
    for name, bound in zip(("left_window_size", "right_window_size"), window, strict=True):
        attributes[name] = -1 if bound is None else bound


def _set_positions(
    given: dict[str, Any], attributes: dict[str, Any], inputs: dict[str, NDArray[Any]], opset: int
) -> None:
    """Express an offset as a past, and lengths with an offset that places the last query at the last key."""
    offset, lengths = given.pop("query_offset", None), given.pop("key_lengths", None)
    queries, keys = inputs["Q"].shape[-2], inputs["K"].shape[-2]
    aligned = bool(attributes.keys() & {"is_causal", "left_window_size"})
    if lengths is not None:
        if opset < 24:
            raise Unsupported(f"the node Attention of opset {opset} has no key_lengths")
        if np.asarray(lengths).dtype.kind != "i":
            raise Unsupported(f"key_lengths: expected integers, got {np.asarray(lengths).dtype}")
        if np.shape(lengths) not in ((), inputs["Q"].shape[:1]):
            raise Unsupported(f"key_lengths: expected one for each batch entry, got {np.shape(lengths)}")
        lengths = np.broadcast_to(lengths, inputs["Q"].shape[0]).astype(np.int64)
        if aligned and not np.array_equal(
            lengths - queries, np.broadcast_to(0 if offset is None else offset, lengths.shape)
        ):
            raise Unsupported("the node Attention with lengths places the last query at the last valid key")
        inputs["nonpad_kv_seqlen"] = lengths
    elif aligned and offset is not None and np.any(offset):
        if not isinstance(offset, int) or not 0 <= offset <= keys:
            raise Unsupported("the node Attention has no offset, except for past keys before all queries")
        for own, past in (("K", "past_key"), ("V", "past_value")):
            inputs[past], inputs[own] = inputs[own][..., :offset, :], inputs[own][..., offset:, :]


def _set_mask(given: dict[str, Any], inputs: dict[str, NDArray[Any]]) -> None:
    mask, bias = given.pop("mask", None), given.pop("bias", None)
    if mask is not None and bias is not None:
        raise Unsupported("the node Attention has one attn_mask, and the call has a mask and a bias")
    if mask is not None and mask.dtype != bool:
        raise Unsupported(f"mask: expected booleans, got {mask.dtype}, which the node takes as a bias")
    if bias is not None and bias.dtype != inputs["Q"].dtype:
        raise Unsupported(f"attn_mask has the dtype of Q, {inputs['Q'].dtype}, and the bias is {bias.dtype}")
    if mask is not None or bias is not None:
        inputs["attn_mask"] = bias if mask is None else mask


def _repeat(mask: NDArray[Any], sizes: tuple[int, int]) -> NDArray[Any]:
    """Repeat a mask along its last two axes where their size is 1."""
    last = (size if own == 1 else own for own, size in zip(mask.shape[-2:], sizes, strict=True))
    return np.ascontiguousarray(np.broadcast_to(mask, (*mask.shape[:-2], *last)))


def _model(
    attributes: Mapping[str, Any], inputs: Mapping[str, NDArray[Any]], outputs: list[str], opset: int
) -> onnx.ModelProto:
    last = max(index for index, name in enumerate(_INPUTS) if name in inputs)
    names = [name if name in inputs else "" for name in _INPUTS[: last + 1]]
    # ONNX Runtime wants the outputs that belong to the past inputs, although they are optional.
    present = ["present_key", "present_value"] if "past_key" in inputs else ["", ""]
    results = [outputs[0], *present, *outputs[1:]]
    node = helper.make_node("Attention", names, results, **attributes)
    starts = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(inputs["Q"].dtype)
    ends = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
    graph = helper.make_graph([node], "attention", starts, ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR[opset])


def has_scale_without_short_root(arguments: Arguments) -> bool:
    """Whether the square root of the given scale is no number of float32."""
    scale = arguments.get("scale")
    return scale is not None and scale > 0 and float(np.sqrt(np.float32(scale))) ** 2 != scale


def without_softcap(arguments: Arguments) -> Arguments:
    """Leave out a softcap that is not positive."""
    if arguments["softcap"] > 0:
        return arguments
    return {name: x for name, x in arguments.items() if name != "softcap"}


def infinite_softcap_elements(arguments: Arguments) -> Mapping[str, NDArray[np.bool_]]:
    """Mean every element if the softcap is infinite."""
    return dict.fromkeys(("output", "weights"), np.asarray(np.isposinf(arguments["softcap"])))


#: A softcap of 0 or below, or of NaN, is none. With an infinite one each row is NaN.
OF_SOFTCAP = (Special(infinite_softcap_elements), OtherCall(without_softcap))


def _with_fitting_mask(arguments: Arguments) -> Arguments:
    """Disallow the keys past the end of a mask, and repeat the arrays for additional axes."""
    name = "mask" if "mask" in arguments else "bias"
    added, keys = arguments[name], arguments["key"].shape[-2]
    if 1 < added.shape[-1] < keys:
        missing = [(0, 0)] * (added.ndim - 1) + [(0, keys - added.shape[-1])]
        added = np.pad(added, missing, constant_values=False if name == "mask" else -np.inf)
    return with_more_axes({**arguments, name: added})


def _has_one_row_beside_causality(arguments: Arguments) -> bool:
    """Whether a causal call of several queries has a mask or a bias with one row for all of them."""
    added = arguments.get("mask", arguments.get("bias"))
    several = arguments["query"].shape[-2] > 1
    return bool(
        arguments.get("is_causal") and several and added is not None and (1, 1, *added.shape)[-2] == 1
    )


def _with_first_row(arguments: Arguments) -> Arguments:
    """Let all queries attend to what the first one may attend to."""
    less = {
        name: x for name, x in arguments.items() if name not in ("is_causal", "query_offset", "mask", "bias")
    }
    offset = np.asarray(arguments.get("query_offset", 0))
    row = np.arange(arguments["key"].shape[-2]) <= offset.reshape((-1, 1, 1, 1) if offset.ndim else ())
    if "mask" in arguments:
        return {**less, "mask": arguments["mask"] & row}
    return {**less, "bias": np.where(row, arguments["bias"], -np.inf).astype(arguments["bias"].dtype)}


def _with_short_root(arguments: Arguments) -> Arguments:
    return {**arguments, "scale": float(np.sqrt(np.float32(arguments["scale"]))) ** 2}


def _integer_elements(arguments: Arguments) -> Mapping[str, NDArray[np.bool_]]:
    """Find the results that are integers, as queries are: the weights are rounded towards 0."""
    return dict.fromkeys(("output", "weights"), np.asarray(arguments["query"].dtype.kind in "biu"))


def reference_backend() -> Backend:
    """Run the node of opset 25."""
    from onnx.reference import ReferenceEvaluator

    return describe(
        onnx_attention(lambda model, inputs: ReferenceEvaluator(model).run(None, inputs), 25),
        name="onnx-reference",
        library="onnx",
        dtypes=["float16", "bfloat16", "float32", "float64"],
        axes=4,
        bias_dtype="query",
        dialect={
            "NUM-5": {"float16": "storage", "bfloat16": "storage"},
        },
        deviations=_DEVIATIONS,
        versions=">=1.23,<1.24",
    )


_DEVIATIONS = (
    Deviation(("SHAPE-7", "MASK-6"), "a call without keys is refused", "onnx/no_keys",
        Raises("ValueError", "zero-size array"), when=has_empty_axis),
    repeated_batch("onnx/batch_repeated"),
    Deviation(("MASK-4",),
        "beside is_causal a mask of one row for all queries takes the causal mask of the first",
        "onnx/one_row_and_causal", OtherCall(_with_first_row), when=_has_one_row_beside_causality),
    Deviation(("NUM-2",), "the square root of a given scale is taken in float32", "onnx/float64_scale",
        OtherCall(_with_short_root), dtypes=("float64",), when=has_scale_without_short_root),
    Deviation(("NUM-6",), "exponentials are summed in bfloat16, where a sum stops to grow", "onnx/half_sums",
        Bound(1), dtypes=("bfloat16",)),
    Deviation(("ERR-2",), "integers are taken", "onnx/integers",
        (Special(_integer_elements, (0.0,)), *OF_OTHER_TYPES)),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "onnx/depth_zero", OF_NO_DEPTH),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "onnx/scale_not_finite", OF_NAN),
    Deviation(("SCORE-6",), "a softcap of 0 or below is none, and infinity is accepted",
        "onnx/softcap_not_positive", OF_SOFTCAP),
    other_heads_of_value("onnx/heads_of_value", "values with other heads than the keys are repeated"),
    Deviation(("ERR-15",), "a mask with more axes than the scores is accepted", "onnx/mask_of_more_axes",
        OtherCall(_with_fitting_mask)),
    mask_overflow("onnx/masked_overflow", may_disallow, "float16"),
)  # fmt: skip
