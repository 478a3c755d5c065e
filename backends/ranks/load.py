"""Read from a name or a configuration that a function or a program is called in several processes."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnspec.backends.errors import BackendError
from attnspec.backends.names import OFFLINE, PROGRAM, UNTRUSTED, own_options, split_options
from attnspec.backends.user.configuration import configuration_of, read_configuration

if TYPE_CHECKING:
    from attnspec.backends.backend import Backend

_MOST = 64


def load_ranks(name: str) -> "Backend | None":
    """Load a function or a program with its ranks; None if it has none."""
    place, options = split_options(name)
    path = None if name.startswith((PROGRAM, OFFLINE, UNTRUSTED)) else configuration_of(place)
    table: dict[str, Any] = read_configuration(name, path) if path else {}
    said = options.pop("ranks", table.get("ranks"))
    if said is None or name.startswith((OFFLINE, UNTRUSTED)):
        return None
    from attnspec.backends.program.program import CALL_LIMIT, words_of
    from attnspec.backends.ranks.backend import command_of, ranks_backend

    limit = options.pop("call_limit", str(table.get("call_limit", CALL_LIMIT)))
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", limit):
        raise BackendError(f"backend {name}: call_limit: expected seconds, got {limit}")
    if name.startswith(PROGRAM) or "program" in table:
        if options := own_options(options):
            raise BackendError(
                f"backend {name}: expected only the options ranks and call_limit, got {', '.join(options)}"
            )
        words = words_of(name, table.get("program", place.removeprefix(PROGRAM)))
    else:
        words = command_of(place, options)
    if "deviations" in table:
        from attnspec.backends.user.settings import deviations_of  # imports NumPy

        entries = deviations_of(f"backend {name}", name, table)
        deviations = tuple(replace(x, versions=x.versions or table.get("versions", "")) for x in entries)
    else:
        deviations = ()
    folder: Path | None = path.parent if path and "program" in table else None
    return ranks_backend(name, words, numbers_of(name, said), float(limit), folder, deviations)


def numbers_of(name: str, said: Any) -> tuple[int, ...]:
    """Read numbers of ranks: 4, a list, or ``1,2,4``."""
    parts = str(said).split(",") if not isinstance(said, list) else [str(part) for part in said]
    numbers = [int(part) for part in parts if re.fullmatch("[1-9][0-9]{0,3}", part)]
    if not numbers or len({*numbers}) < len(parts) or max(numbers) > _MOST:
        raise BackendError(
            f"backend {name}: ranks: expected different numbers from 1 to {_MOST}, such as 4 or 1,2,4, "
            f"got {said}"
        )
    return tuple(numbers)
