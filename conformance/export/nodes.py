"""The form that runtimes of ONNX test by: a folder for each case, with its model and its data."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnspec import SpecError
from attnspec.backends import Unsupported
from attnspec.conformance.export.judged import Judged

if TYPE_CHECKING:
    from onnx import ModelProto

#: The operator sets of Attention, the oldest first: a case is written in the first that has its options.
_OPSETS = (23, 24, 25)
_DATA = "test_data_set_0"


def write_onnx(found: Iterable[Judged], folder: Path) -> int:
    """Write the cases that the node Attention can express, and return their number.

    Each folder has ``model.onnx`` and ``test_data_set_0`` with ``input_0.pb`` and so on, ``output_0.pb``, as
    ONNX's own tests have, and ``allowed_0.pb`` beside it, the allowed error of each element in float64. The
    expected output is rounded to the dtype of the output.
    """
    try:
        import onnx
        from onnx import numpy_helper
    except ModuleNotFoundError as error:
        raise SpecError("format: onnx is not installed; pip install onnx") from error
    number = 0
    for one in found:
        made = _model(one)
        if made is None:
            continue
        model, inputs = made
        number += 1
        data = folder / one.name / _DATA
        data.mkdir(parents=True)
        onnx.save(model, folder / one.name / "model.onnx")
        (output,) = (output for output in one.outputs if output.name == "output")
        with np.errstate(over="ignore"):
            rounded = output.expected.astype(one.dtype)
        tensors = {f"input_{place}": inputs[named.name] for place, named in enumerate(model.graph.input)}
        tensors |= {"output_0": rounded, "allowed_0": output.allowed}
        for name, array in tensors.items():
            title = "Y" if name == "output_0" else name
            octets = numpy_helper.from_array(np.ascontiguousarray(array), title).SerializeToString()
            (data / f"{name}.pb").write_bytes(octets)
        cited = f"{one.name}: {one.title}\nrules: {', '.join(one.rules)}\n"
        (folder / one.name / "case.txt").write_text(cited, encoding="utf-8", newline="\n")
    return number


def _model(one: Judged) -> "tuple[ModelProto, dict[str, NDArray[Any]]] | None":
    """Return the model of a case, or None if no node of ONNX can express the call."""
    from attnspec.backends.adapters.onnx import onnx_model

    judged = any(output.name == "output" for output in one.outputs)
    if one.operation != "attention" or one.refusal != "never" or not judged:
        return None
    if any(np.ndim(one.arguments[name]) != 4 for name in ("query", "key", "value")):
        return None
    for opset in _OPSETS:
        try:
            # ONNX's reference does not repeat a mask along the axes of queries and keys as its text says.
            return onnx_model(one.arguments, opset=opset, whole_masks=True)
        except Unsupported:
            continue
    return None
