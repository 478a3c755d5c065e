"""The allowed error of each element of a golden vector, in each dtype that holds its inputs."""

from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from attnspec import Case, find_case
from attnspec.conformance.export.judged import Judged, judged
from attnspec.conformance.judge.dtypes import in_each

#: The allowed errors of a call, by output.
Allowed = Mapping[str, NDArray[np.float64]]


@cache
def in_dtypes(case_id: str) -> Mapping[str, tuple[Case, Allowed]]:
    """Return a golden vector in each dtype, with the errors that the judge allows in it.

    They are those of the files of ``attnspec export``: the class ``full`` in float32 and float64, and the
    class ``cast`` in half precision.

    Examples
    --------
    >>> found = in_dtypes("masking-window-both")
    >>> list(found)
    ['float16', 'bfloat16', 'float32', 'float64']
    >>> case, allowed = found["float32"]
    >>> allowed["output"].shape == case.expected["output"].shape
    True
    """
    found = {}
    for case in in_each(find_case(case_id)):
        calls = [one for one in judged([case]) if isinstance(one, Judged) and one.name == case.name]
        outputs = {output.name: output.allowed for one in calls for output in one.outputs}
        found[case.dtype] = (case, {name: outputs[name] for name in case.expected if name in outputs})
    return found


def preferred(case_id: str) -> str:
    """Return the dtype that a page shows first: float32, or the first that holds the inputs."""
    found = in_dtypes(case_id)
    return "float32" if "float32" in found else next(iter(found))
