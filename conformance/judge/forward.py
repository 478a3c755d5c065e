"""Results of the forward pass, for functions of gradients that take them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends import Backend
from attnspec.conformance.judge.dtypes import Outputs, lse_dtype
from attnspec.conformance.judge.expected import exact
from attnspec.dtypes import DTYPES
from attnspec.fitting import misfits
from attnspec.operations.gradients import primal


def forward_results(backend: Backend, operation: str, arguments: Mapping[str, Any]) -> Outputs:
    """Compute the results of the forward pass that a backend takes in a call of gradients.

    They are the exact values in the dialect of the backend, rounded to the dtypes of output and lse. For a
    malformed call, which has no exact values, they are 0.

    Examples
    --------
    >>> from dataclasses import replace
    >>> import numpy as np
    >>> from attnspec.backends import load
    >>> from attnspec.conformance.judge.forward import forward_results
    >>> taking = lambda query, key, value, d_output, *, lse: ()
    >>> backend = replace(load("numpy-portable"), companions={"attention_vjp": taking})
    >>> one = np.ones((1, 1), np.float32)
    >>> call = {"query": one, "key": one, "value": one, "d_output": one}
    >>> forward_results(backend, "attention_vjp", call)["lse"].tolist()
    [1.0]
    """
    forward = OPERATIONS[operation].forward
    taken = [one for one in forward if backend.has(operation, one.name) and one.name not in arguments]
    if not taken:
        return {}
    of = primal(operation)
    given = {name: thing for name, thing in arguments.items() if name in OPERATIONS[of].arguments}
    dialect = {rule: variant for rule, variant in backend.dialect.items() if not rule.startswith("GRAD")}
    query, value = given["query"], given["value"]
    values: Mapping[str, Any]
    if misfits(of, given):
        outer = query.shape[:-1]
        values = {"output": np.zeros((*outer, *value.shape[-1:])), "lse": np.zeros(outer)}
    else:
        values = exact(of, given, dialect)
    dtype = given["query"].dtype.name
    dtypes = {"output": dtype, "lse": lse_dtype(dtype)} if dtype in DTYPES else {}
    with np.errstate(over="ignore"):
        return {one.name: values[one.name].astype(dtypes.get(one.name, dtype)) for one in taken}
