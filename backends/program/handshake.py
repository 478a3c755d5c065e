"""The handshake: a program declares what it offers before the first call.

The message of the protocol is named hello (``conformance/protocol.md``).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attnspec import OPERATIONS, claimable
from attnspec.backends.errors import BackendError
from attnspec.dtypes import DTYPES

#: The version of the protocol.
PROTOCOL = 1


@dataclass(frozen=True)
class Handshake:
    """The declarations of an implementation."""

    name: str
    version: str
    dtypes: tuple[str, ...]
    operations: Mapping[str, tuple[str, ...]]
    dialect: Mapping[str, Any] = field(default_factory=dict)
    claims: tuple[str, ...] = ()


def parse_handshake(name: str, line: str) -> Handshake:
    """Read the answer to hello.

    Examples
    --------
    >>> from attnspec.backends.program.handshake import parse_handshake
    >>> said = '{"protocol": 1, "dtypes": ["float32"], "operations": {"attention": ["scale"]}}'
    >>> parse_handshake("p", said).operations
    {'attention': ('scale',)}
    """
    said = parsed(line)
    if not isinstance(said, dict):
        raise BackendError(f"backend {name}: hello: expected a JSON object, got {short(line)}")
    if said.get("protocol") != PROTOCOL:
        raise BackendError(
            f"backend {name}: hello: protocol: expected {PROTOCOL}, got {said.get('protocol')!r}"
        )
    dtypes, operations = said.get("dtypes"), said.get("operations")
    if not isinstance(dtypes, list) or not dtypes or not set(map(str, dtypes)) <= set(DTYPES):
        raise BackendError(
            f"backend {name}: hello: dtypes: expected some of {', '.join(DTYPES)}, got {dtypes!r}"
        )
    if not isinstance(operations, dict) or not operations:
        raise BackendError(
            f"backend {name}: hello: operations: expected an object with attention or other operations, "
            f"got {operations!r}"
        )
    for operation, options in operations.items():
        if operation not in OPERATIONS:
            raise BackendError(
                f"backend {name}: hello: operations: expected some of {', '.join(OPERATIONS)}, "
                f"got {operation!r}"
            )
        known = OPERATIONS[operation].offers
        if not isinstance(options, list) or not set(map(str, options)) <= set(known):
            raise BackendError(
                f"backend {name}: hello: {operation}: expected some of {', '.join(known)}, got {options!r}"
            )
    dialect = said.get("dialect", {})
    if not isinstance(dialect, dict):
        raise BackendError(f"backend {name}: hello: dialect: expected an object, got {dialect!r}")
    claims = said.get("claims", [])
    if not isinstance(claims, list) or not set(map(str, claims)) <= set(claimable()):
        raise BackendError(
            f"backend {name}: hello: claims: expected some of {', '.join(claimable())}, got {claims!r}"
        )
    return Handshake(
        str(said.get("name", "")),
        str(said.get("version", "")),
        tuple(dtypes),
        {operation: tuple(options) for operation, options in operations.items()},
        dialect,
        tuple(claims),
    )


def parsed(line: str) -> Any:
    """Parse a line of JSON; None if it is invalid."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def short(text: str) -> str:
    """Quote the start of a text."""
    return repr(text if len(text) <= 120 else f"{text[:120]}...")
