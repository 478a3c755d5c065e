"""A vector as code that can be pasted: NumPy, PyTorch, JAX, C and JSON."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case
from attnspec.case_json import spelled, to_json
from pages.allowed import Allowed

_C_TYPES = {"float64": "double", "int64": "int64_t", "int32": "int32_t", "bool": "bool"}
_WIDTH = 100
_NONE: Allowed = {}


def in_json(case: Case, allowed: Allowed = _NONE) -> str:
    """Write a case as an entry of a vector file, with its allowed errors."""
    more = {"allowed": spelled(allowed)} if allowed else {}
    return json.dumps(to_json(case) | more, indent=1, allow_nan=False) + "\n"


def in_numpy(case: Case, allowed: Allowed = _NONE) -> str:
    """Write a case as Python with arrays of NumPy."""
    short = any(str(one.dtype) == "bfloat16" for one in _arrays(case.arguments))
    return _python(
        case,
        allowed,
        ["import numpy as np", *(["import ml_dtypes"] if short else [])],
        lambda array: (
            f"np.array({_nested(array, 'np.nan', 'np.inf')}, dtype="
            f"{'ml_dtypes' if str(array.dtype) == 'bfloat16' else 'np'}.{_dtype(array)})"
            f"{_reshaped(array)}"
        ),
    )


def in_torch(case: Case, allowed: Allowed = _NONE) -> str:
    """Write a case as Python with tensors of PyTorch."""
    return _python(
        case,
        allowed,
        ["import torch"],
        lambda array: (
            f"torch.tensor({_nested(array, 'torch.nan', 'torch.inf')}, dtype=torch.{array.dtype})"
            f"{_reshaped(array)}"
        ),
    )


def in_jax(case: Case, allowed: Allowed = _NONE) -> str:
    """Write a case as Python with arrays of JAX."""
    return _python(
        case,
        allowed,
        ["import jax", "import jax.numpy as jnp", "", 'jax.config.update("jax_enable_x64", True)'],
        lambda array: (
            f"jnp.array({_nested(array, 'jnp.nan', 'jnp.inf')}, dtype=jnp.{_dtype(array)}){_reshaped(array)}"
        ),
    )


def in_c(case: Case, allowed: Allowed = _NONE) -> str:
    """Write a case as C: constants, with the shape of each array in a comment."""
    lines = [
        f"/* {case.id}: {case.title} */",
        "#include <math.h>",
        "#include <stdbool.h>",
        "#include <stdint.h>",
    ]
    lines += ["", f"/* arguments of {case.operation} */"]
    for name, thing in case.arguments.items():
        lines += _of_c(name, thing)
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
    "numpy": ("NumPy", in_numpy),
    "torch": ("PyTorch", in_torch),
    "jax": ("JAX", in_jax),
    "c": ("C", in_c),
    "json": ("JSON", in_json),
}


def _python(case: Case, allowed: Allowed, imports: list[str], array: Callable[[NDArray[Any]], str]) -> str:
    lines = [f"# {case.id}: {case.title}", *imports, ""]
    for name, thing in case.arguments.items():
        lines.append(f"{name} = {array(thing) if isinstance(thing, np.ndarray) else _plain(thing)}")
    call = ", ".join(f"{name}={name}" for name in case.arguments)
    if case.misuse:
        lines += ["", f"# {_must_refuse(case)}", f"# {case.operation}({call})"]
    if case.expected:
        lines += ["", "# proven: each number is the float64 nearest to the exact value"]
        lines.append("expected = {")
        lines += [f'    "{name}": {array(values)},' for name, values in case.expected.items()]
        lines += ["}"]
    if allowed:
        lines += ["", f"# {_meaning(case.dtype)}", "allowed = {"]
        lines += [f'    "{name}": {array(values)},' for name, values in allowed.items()]
        lines += ["}"]
    if case.expected:
        lines += [f"# got = {case.operation}({call})"]
    return "\n".join(lines) + "\n"


def _meaning(dtype: str) -> str:
    return f"the largest error of each element in {dtype}; nan: not compared; inf: nan is accepted too"


def _must_refuse(case: Case) -> str:
    misuse = case.misuse
    names = (misuse.argument, *misuse.named) if misuse else ()
    may = "may refuse" if misuse and misuse.allowed else "must refuse"
    return f"an implementation {may} this call, and the error names {' or '.join(names)}"


def _arrays(group: Mapping[str, Any]) -> list[NDArray[Any]]:
    return [thing for thing in group.values() if isinstance(thing, np.ndarray)]


def _dtype(array: NDArray[Any]) -> str:
    return "bool_" if array.dtype == bool else str(array.dtype)


def _plain(thing: Any) -> str:
    if isinstance(thing, float) and not math.isfinite(thing):
        return f'float("{thing}")'
    return repr(thing.item() if isinstance(thing, np.generic) else thing)


def _reshaped(array: NDArray[Any]) -> str:
    """Give an array without elements its shape, which a nested list does not show."""
    return f".reshape({array.shape})" if array.size == 0 and array.ndim > 1 else ""


def number(x: Any) -> str:
    """Write a number so that it is read as the same float64."""
    return (
        repr(x)
        if isinstance(x, bool | int)
        else repr(float(x)).removesuffix(".0")
        + ("." if float(x).is_integer() and "e" not in repr(float(x)) else "")
    )


def _nested(array: NDArray[Any], nan: str, infinity: str) -> str:
    """Write an array as nested lists."""
    if array.size == 0:
        return "[]"
    plain = array if array.dtype.kind in "biu" else array.astype(np.float64)

    def written(part: Any) -> str:
        if isinstance(part, list):
            return f"[{', '.join(map(written, part))}]"
        if isinstance(part, float):
            if math.isnan(part):
                return nan
            if math.isinf(part):
                return infinity if part > 0 else f"-{infinity}"
        return number(part)

    whole = written(plain.tolist())
    if len(whole) <= _WIDTH:
        return whole
    return whole.replace("], [", "],\n    [")


def _of_c(name: str, thing: Any) -> list[str]:
    """Declare one argument or result in C."""
    if isinstance(thing, np.ndarray):
        kind = _C_TYPES.get(str(thing.dtype), "float")
        note = f"{thing.dtype}, shape ({', '.join(map(str, thing.shape))})"
        if thing.size == 0:
            return [f"/* {name}: {note}, no element */"]
        plain = thing if thing.dtype.kind in "biu" else thing.astype(np.float64)
        numbers = [_c_number(x) for x in plain.ravel().tolist()]
        lines = [f"static const {kind} {name}[{thing.size}] = {{ /* {note} */"]
        lines += [f"    {', '.join(numbers[at : at + 6])}," for at in range(0, len(numbers), 6)]
        return [*lines, "};"]
    if isinstance(thing, bool | np.bool_):
        return [f"static const bool {name} = {str(bool(thing)).lower()};"]
    if isinstance(thing, int | np.integer):
        return [f"static const int64_t {name} = {int(thing)};"]
    if isinstance(thing, float | np.floating):
        return [f"static const double {name} = {_c_number(float(thing))};"]
    if isinstance(thing, str):
        return [f"static const char {name}[] = {json.dumps(thing)};"]
    if isinstance(thing, tuple):
        return [f"/* {name}: {thing!r}, where None is an open side */"]
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
