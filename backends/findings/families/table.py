"""What a family of findings is made of: rows, each one call of one library.

A row shows its finding if the call gives what the row says. A call that a library should refuse has
`ERROR` on the right. Run a family to see the rows whose library is installed, or those of some
libraries: `python backends/findings/families/scale.py torch jax`.
"""

import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from shutil import which

import numpy as np

#: The modules of libraries of another name.
_MODULES = {"litert": "ai_edge_litert", "x-transformers": "x_transformers"}
#: What a call gives that raises an exception.
ERROR = "an error"


@dataclass(frozen=True)
class Row:
    """A call of a library: `finding` is its permanent id, which several rows can share."""

    finding: str
    rules: str
    call: str
    run: Callable[[], object]
    got: object
    right: object
    rank: str = "difference"
    promise: str = ""
    known: str = ""
    compiled: bool = False
    gpu: bool = False

    @property
    def is_runnable(self) -> bool:
        """Whether its library is installed, and a compiler or a GPU of NVIDIA if the call needs one."""
        module = _MODULES.get(self.library, self.library)
        needs = [name for name, needed in (("g++", self.compiled), ("nvidia-smi", self.gpu)) if needed]
        return bool(find_spec(module) and all(map(which, needs)))

    @property
    def library(self) -> str:
        """The module of the library."""
        return self.finding.partition("/")[0]

    def shows(self, outcome: object) -> bool:
        """Whether an outcome of the call is that of the finding."""
        return _same(outcome, self.got)


def observe(row: Row) -> object:
    """Make the call of a row: an array, or numbers, a shape, a name, or `ERROR`."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return row.run()
        except Exception:  # noqa: BLE001 - libraries have no common type
            return ERROR


def text_of(outcome: object) -> str:
    """Return an outcome as text: one number for an array of equal ones."""
    if not isinstance(outcome, (np.ndarray, np.generic, float, list)):
        return str(outcome)
    numbers = [float(f"{number:.6g}") for number in np.ravel(np.asarray(outcome, np.float64))]
    equal = numbers and all(_same(number, numbers[0]) for number in numbers)
    return str(numbers[0] if equal else numbers)


def show(rows: Iterable[Row]) -> None:
    """Run the rows whose library is installed, and exit with 1 if one shows its finding no longer."""
    gone = 0
    for row in rows:
        if row.is_runnable and row.library in (sys.argv[1:] or [row.library]):
            outcome = observe(row)
            gone += not row.shows(outcome)
            print(f"{'shows' if row.shows(outcome) else 'GONE '} {row.finding} {row.rules}: {row.call}")
            print(f"      got {text_of(outcome)}, right is {text_of(row.right)}")
    sys.exit(gone > 0)


def _same(outcome: object, got: object) -> bool:
    """Compare numbers with a tolerance for the last digits of float16, and all else exactly."""
    if any(isinstance(side, (str, tuple, type(None))) for side in (outcome, got)):
        return type(outcome) is type(got) and outcome == got
    one, other = np.asarray(outcome, np.float64), np.asarray(got, np.float64)
    if other.ndim and one.size != other.size:
        return False
    return bool(np.allclose(one.ravel(), other.ravel(), rtol=1e-3, atol=0, equal_nan=True))
