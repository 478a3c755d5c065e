"""Golden vectors: their numbers on a page, the errors that the judge allows, and code to copy.

The code is NumPy, PyTorch, JAX, C and JSON, in each dtype that holds the inputs.
"""

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pages.page import packed

from attnspec import Case, find_case
from attnspec.conformance.export.calls import ExportedCall, exported_calls
from attnspec.conformance.judge.dtypes import in_each
from attnspec.dtypes import SHORT
from attnspec.golden import spelled, to_json

#: The allowed errors of a call, by output.
Allowed = Mapping[str, NDArray[np.float64]]


@cache
def in_dtypes(case_id: str) -> Mapping[str, tuple[Case, Allowed]]:
    """Return a golden vector in each dtype, with the errors that the judge allows in it.

    They are those of the files of ``attnspec export``: the class ``full`` in float32 and float64, and the
    class ``cast`` in half precision.
    """
    found = find_case(case_id)
    calls = [call for call in exported_calls([found]) if isinstance(call, ExportedCall)]
    outputs = {output.name: output.allowed for call in calls for output in call.outputs}
    dtypes = {}
    for case in in_each(found):
        key = case.dtype, "cast" if case.dtype in SHORT else "full"
        judged = {name: outputs[name] for name in case.expected if name in outputs}
        dtypes[case.dtype] = (case, {name: allowed[key] for name, allowed in judged.items()})
    return dtypes


def default_dtype(case_id: str) -> str:
    """Return the dtype that a page shows first: float32, or the first that holds the inputs."""
    dtypes = in_dtypes(case_id)
    return "float32" if "float32" in dtypes else next(iter(dtypes))


#: An array with more elements is shown folded.
_MOST = 160
_C_TYPES = {"float64": "double", "int64": "int64_t", "int32": "int32_t", "bool": "bool"}
_WIDTH = 100
_JAX = ["import jax", "import jax.numpy as jnp", "", 'jax.config.update("jax_enable_x64", True)']


def _in_json(case: Case, allowed: Allowed) -> str:
    """Write a case as an entry of a vector file, with its allowed errors."""
    more = {"allowed": spelled(allowed)} if allowed else {}
    return json.dumps(to_json(case) | more, indent=1, allow_nan=False) + "\n"


def _in_numpy(case: Case, allowed: Allowed) -> str:
    arrays = [value for value in case.arguments.values() if isinstance(value, np.ndarray)]
    short = any(str(array.dtype) == "bfloat16" for array in arrays)
    return _in_python(case, allowed, "np.array", "import numpy as np", *["import ml_dtypes"] * short)


def _in_torch(case: Case, allowed: Allowed) -> str:
    return _in_python(case, allowed, "torch.tensor", "import torch")


def _in_jax(case: Case, allowed: Allowed) -> str:
    return _in_python(case, allowed, "jnp.array", *_JAX)


def _in_python(case: Case, allowed: Allowed, function: str, *imports: str) -> str:
    """Write a case as Python with arrays that a function makes."""

    def array(values: NDArray[Any]) -> str:
        module = function.partition(".")[0]
        nested = _nest(values, f"{module}.nan", f"{module}.inf")
        dtype = f"{module}.{values.dtype}"
        if str(values.dtype) == "bool" and module != "torch":
            dtype += "_"
        if str(values.dtype) == "bfloat16" and module == "np":
            dtype = "ml_dtypes.bfloat16"
        # A nested list does not show the shape of an array without elements.
        shape = f".reshape({values.shape})" if values.size == 0 and values.ndim > 1 else ""
        return f"{function}({nested}, dtype={dtype}){shape}"

    def group(name: str, arrays: Mapping[str, NDArray[Any]]) -> list[str]:
        return [f"{name} = {{", *(f'    "{key}": {array(each)},' for key, each in arrays.items()), "}"]

    lines = [f"# {case.id}: {case.title}", *imports, ""]
    for name, value in case.arguments.items():
        lines.append(f"{name} = {array(value) if isinstance(value, np.ndarray) else _plain(value)}")
    call = ", ".join(f"{name}={name}" for name in case.arguments)
    if case.misuse:
        lines += ["", f"# {_must_refuse(case)}", f"# {case.operation}({call})"]
    if case.expected:
        lines += ["", "# proven: each number is the float64 nearest to the exact value"]
        lines += group("expected", case.expected)
    if allowed:
        lines += ["", f"# {_meaning(case.dtype)}", *group("allowed", allowed)]
    if case.expected:
        lines += [f"# got = {case.operation}({call})"]
    return "\n".join(lines) + "\n"


def _in_c(case: Case, allowed: Allowed) -> str:
    """Write a case as C: constants, with the shape of each array in a comment."""
    lines = [
        f"/* {case.id}: {case.title} */",
        "#include <math.h>",
        "#include <stdbool.h>",
        "#include <stdint.h>",
    ]
    lines += ["", f"/* arguments of {case.operation} */"]
    for name, value in case.arguments.items():
        lines += _of_c(name, value)
    if case.misuse:
        lines += ["", f"/* {_must_refuse(case)} */"]
    for name, array in case.expected.items():
        lines += ["", "/* proven: each number is the float64 nearest to the exact value */"]
        lines += _of_c(f"expected_{name}", array)
    for name, array in allowed.items():
        lines += ["", f"/* {_meaning(case.dtype)} */"]
        lines += _of_c(f"allowed_{name}", array)
    return "\n".join(lines) + "\n"


#: How each format is called, and the function that writes it.
FORMATS: Mapping[str, tuple[str, Callable[[Case, Allowed], str]]] = {
    "numpy": ("NumPy", _in_numpy),
    "torch": ("PyTorch", _in_torch),
    "jax": ("JAX", _in_jax),
    "c": ("C", _in_c),
    "json": ("JSON", _in_json),
}


def _meaning(dtype: str) -> str:
    return f"the largest error of each element in {dtype}; nan: not compared; inf: nan is accepted too"


def _must_refuse(case: Case) -> str:
    misuse = case.misuse
    names = (misuse.argument, *misuse.named) if misuse else ()
    may = "may refuse" if misuse and misuse.allowed else "must reject"
    return f"an implementation {may} this call, and the error names {' or '.join(names)}"


def _plain(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value.item() if isinstance(value, np.generic) else value)


def number(x: Any) -> str:
    """Write a number so that it is read as the same float64."""
    return (
        repr(x)
        if isinstance(x, bool | int)
        else repr(float(x)).removesuffix(".0")
        + ("." if float(x).is_integer() and "e" not in repr(float(x)) else "")
    )


def _nest(array: NDArray[Any], nan: str, infinity: str) -> str:
    """Write an array as nested lists."""
    if array.size == 0:
        return "[]"
    plain = array if array.dtype.kind in "biu" else array.astype(np.float64)

    def spell(part: Any) -> str:
        if isinstance(part, list):
            return f"[{', '.join(map(spell, part))}]"
        if isinstance(part, float):
            if math.isnan(part):
                return nan
            if math.isinf(part):
                return infinity if part > 0 else f"-{infinity}"
        return number(part)

    whole = spell(plain.tolist())
    if len(whole) <= _WIDTH:
        return whole
    return whole.replace("], [", "],\n    [")


def _of_c(name: str, value: Any) -> list[str]:
    """Declare one argument or result in C."""
    if isinstance(value, np.ndarray):
        kind = _C_TYPES.get(str(value.dtype), "float")
        note = f"{value.dtype}, shape ({', '.join(map(str, value.shape))})"
        if value.size == 0:
            return [f"/* {name}: {note}, no element */"]
        plain = value if value.dtype.kind in "biu" else value.astype(np.float64)
        numbers = [_c_number(x) for x in plain.ravel().tolist()]
        lines = [f"static const {kind} {name}[{value.size}] = {{ /* {note} */"]
        lines += [f"    {', '.join(numbers[at : at + 6])}," for at in range(0, len(numbers), 6)]
        return [*lines, "};"]
    if isinstance(value, bool | np.bool_):
        return [f"static const bool {name} = {str(bool(value)).lower()};"]
    if isinstance(value, int | np.integer):
        return [f"static const int64_t {name} = {int(value)};"]
    if isinstance(value, float | np.floating):
        return [f"static const double {name} = {_c_number(float(value))};"]
    if isinstance(value, str):
        return [f"static const char {name}[] = {json.dumps(value)};"]
    if isinstance(value, tuple):
        return [f"/* {name}: {value!r}, where None is an open side */"]
    return [f"/* {name}: not given */"]


def _c_number(x: Any) -> str:
    if isinstance(x, bool):
        return str(x).lower()
    if isinstance(x, int):
        return f"INT64_C({x})" if abs(x) >= 2**31 else str(x)
    if math.isnan(x):
        return "NAN"
    if math.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    return repr(x)


def vector(case: Case) -> dict[str, Any]:
    """Return what the page of its first rule shows of a golden vector."""
    return {
        "case": case,
        "most": _MOST,
        "others": case.rules[1:],
        "formats": [(name, label) for name, (label, _) in FORMATS.items()],
        "dtypes": [*in_dtypes(case.id)],
        "default": default_dtype(case.id),
        "arguments": _rows(case.arguments),
        "expected": _rows(case.expected),
        "allowed": _largest(case) if case.expected else [],
        "alternatives": [(other, _rows(other.expected)) for other in case.alternatives],
    }


def script(case: Case) -> str:
    """Return the script with the code of a case in each dtype, loaded when a button is pressed."""
    texts = {
        dtype: {name: write(in_dtype, allowed) for name, (_, write) in FORMATS.items()}
        | {"allowed": "\n\n".join(f"{name}\n{_grid(_round_up(x))}" for name, x in allowed.items())}
        for dtype, (in_dtype, allowed) in in_dtypes(case.id).items()
    }
    return f"attnspecCase({json.dumps(case.id)}, {json.dumps(packed(texts))});\n"


def _largest(case: Case) -> list[str]:
    """Return the largest allowed error in each dtype."""
    most = []
    for dtype, (_, allowed) in in_dtypes(case.id).items():
        finite = [x[np.isfinite(x)].max(initial=0) for x in allowed.values() if x.size]
        if finite:
            most.append(f"{dtype} {_up(float(max(finite)))}")
    return most


def _round_up(array: NDArray[np.float64]) -> NDArray[np.float64]:
    plain = [float(_up(x)) if math.isfinite(x) else x for x in array.ravel().tolist()]
    return np.array(plain, dtype=np.float64).reshape(array.shape)


def _up(x: float) -> str:
    """Write a number with three digits that is not below it."""
    text = f"{x:.2e}"
    if float(text) < x:
        text = f"{x + 10.0 ** (math.floor(math.log10(x)) - 2) / 2:.2e}"
    return f"{float(text):g}"


def _rows(group: Mapping[str, Any]) -> list[tuple[str, str, int, str]]:
    """Return of each argument or output its name, what array it is, its size, and its numbers."""
    return [
        (name, f"{value.dtype} ({', '.join(map(str, value.shape))})", value.size, _grid(value))
        if isinstance(value, np.ndarray)
        else (name, "", 0, repr(value))
        for name, value in group.items()
    ]


def _grid(array: NDArray[Any]) -> str:
    """Write an array with aligned columns, one line a row, and an empty line between matrices."""
    if array.size == 0:
        return "no element"
    plain = array if array.dtype.kind in "biu" else array.astype(np.float64)
    texts = [_short(x, str(array.dtype)) for x in plain.ravel().tolist()]
    columns = array.shape[-1] if array.ndim else 1
    widths = [max(map(len, texts[column::columns])) for column in range(columns)]
    rows = [
        "  ".join(text.rjust(width) for text, width in zip(texts[at : at + columns], widths, strict=True))
        for at in range(0, len(texts), columns)
    ]
    height = array.shape[-2] if array.ndim > 1 else 1
    return "\n\n".join("\n".join(rows[at : at + height]) for at in range(0, len(rows), height))


def _short(x: Any, dtype: str) -> str:
    if isinstance(x, bool):
        return "T" if x else "·"
    if isinstance(x, int):
        return str(x)
    if not math.isfinite(x):
        return {"inf": "inf", "-inf": "-inf"}.get(str(x), "nan")
    text = repr(float(np.float32(x))) if dtype == "float32" and len(repr(x)) > 12 else repr(x)
    if dtype == "float32" and float(np.float32(text)) == x:
        text = str(np.float32(x))
    return text.removesuffix(".0")
