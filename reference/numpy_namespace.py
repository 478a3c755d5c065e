"""The array namespace of NumPy, without the parts of NumPy that no function of arrays needs."""

from typing import Any

import numpy as np

#: NumPy imports these packages at their first use. array-api-compat copies every name of NumPy, and to import
#: them all takes as long as the rest of NumPy.
_UNUSED = {"ctypeslib", "f2py", "ma", "matlib", "polynomial", "testing"}


def _namespace() -> Any:
    """Import the namespace while NumPy does not list these packages."""
    own = vars(np)
    before = {name: own[name] for name in ("__all__", "__dir__")}
    names = [name for name in dir(np) if name not in _UNUSED]
    public = [name for name in np.__all__ if name not in _UNUSED]
    own.update(__all__=public, __dir__=lambda: names)
    try:
        import array_api_compat.numpy as xp
    finally:
        own.update(before)
    return xp


xp = _namespace()
