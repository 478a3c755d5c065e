"""Counts the calls that `attnspec init` makes of a function, says how many, and ends if none returns."""

from collections.abc import Callable
from functools import wraps
from time import monotonic
from typing import Any

#: The seconds between two lines, and after which no other call is made if none has returned.
_BETWEEN, _MOST = 5.0, 180.0


class NoCallReturns(BaseException):
    """No call has returned for a long time. It is no `Exception`, which a wrong guess raises."""


def count_calls(function: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """Return a function that says how many calls it has made, and raises `NoCallReturns` if none returns."""
    started = said = monotonic()
    number, first, returned = 0, "", False

    @wraps(function)
    def call(*arrays: Any, **options: Any) -> Any:
        nonlocal said, number, first, returned
        now = monotonic()
        if now - said >= _BETWEEN:
            said = now
            say(f"init: {number} calls so far, {now - started:.0f} s")
        if now - started >= _MOST and not returned:
            raise NoCallReturns(
                f"expected some call to return, got none of {number} in {now - started:.0f} s; "
                f"the first raised {first}"
            )
        number += 1
        try:
            result = function(*arrays, **options)
        except Exception as error:
            first = first or f"{type(error).__name__}: {str(error).strip() or 'no message'}"
            raise
        returned = True
        return result

    return call
