"""The device of arrays."""

from typing import Any


def device_of(array: Any) -> dict[str, Any]:
    """Return the keyword that makes an array on the device of another; empty on the host."""
    device = getattr(array, "device", "cpu")
    return {} if device == "cpu" else {"device": device}
