"""A backend whose calls of sharded attention are made by several processes."""

import atexit
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend
from attnspec.backends.constraints import ANY, Constraints
from attnspec.backends.deviation import Deviation, holds
from attnspec.backends.errors import BackendError, Broken, NotApplicable
from attnspec.backends.library.library import array_api_library
from attnspec.backends.names import with_options
from attnspec.backends.program.protocol import as_function
from attnspec.backends.ranks.cut import Cut, is_sharded
from attnspec.backends.ranks.processes import Ranks, Results
from attnspec.backends.user.convention import Convention
from attnspec.reference.numpy_namespace import xp

#: Options that the positions of queries and keys stand for, if a function takes both.
_POSITIONS = ("query_positions", "key_positions")


def command_of(place: str, options: Mapping[str, str]) -> list[str]:
    """Return the command of a rank of a Python function."""
    return [sys.executable, "-P", "-m", "attnspec.backends.ranks.rank", with_options(place, options)]


def ranks_backend(
    name: str,
    words: Sequence[str],
    numbers: Sequence[int],
    seconds: float,
    folder: Path | None = None,
    deviations: Sequence[Deviation] = (),
) -> Backend:
    """Start the ranks, and make a backend from what they offer.

    Of the declared deviations those hold that are of the release which a rank has.
    The processes of the other numbers of ranks are started at their first call.
    """
    jobs = {number: Ranks(name, words, number, seconds, folder) for number in numbers}
    for job in jobs.values():
        atexit.register(job.close)
    said = jobs[numbers[0]].start()
    offered = {x: options for x, options in said.operations.items() if is_sharded(x)}
    if not offered:
        raise BackendError(
            f"backend {name}: ranks: expected sharded_attention among the operations, "
            f"got {', '.join(said.operations)}"
        )
    functions = {}
    for operation, options in offered.items():
        form = OPERATIONS[operation]
        # A rank need not ask for the boundaries of rows, and its positions stand for an offset.
        more = {x.name for x in form.named if x.required}
        more |= {"query_offset"} if {*_POSITIONS} <= {*options} else set()
        names = [x for x in form.offers if x in {*options, *more}]
        function = functions[operation] = as_function(operation, names, partial(_run, jobs, options))
        if said.described and folder is None:  # by the process of a function in Python
            function.program = False  # type: ignore[attr-defined] # as in `as_function`
            if (own := said.described["names"]) is not None:
                function.convention = Convention(names=own)  # type: ignore[attr-defined] # marks it as adapted
    library = array_api_library("program", f"{said.name} {said.version}".strip() or "program", xp)
    declared: dict[str, Any] = {"dialect": said.dialect, "claims": said.claims, "concurrent": False}
    if said.described:
        declared |= {key: said.described[key] for key in ("accuracy", "profile")}
        declared["not_understood"] = tuple(said.described["not_understood"])
        fits = said.described["fits"]
        declared["constraints"] = Constraints.of_suffix(fits) if fits else ANY
    held = (x for x in deviations if holds(x.versions, said.version))
    declared["deviations"] = tuple(replace(x, versions="") for x in held)
    notes = (f"each call is made by {_list(numbers)} processes",)
    return Backend(name, library, dtypes=said.dtypes, companions=functions, notes=notes, **declared)


def _list(numbers: Iterable[int]) -> str:
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last


def _run(
    jobs: Mapping[int, Ranks], offered: Sequence[str], operation: str, arguments: Mapping[str, Any]
) -> NDArray[Any] | Results:
    """Make one call by all ranks, and put their results together."""
    cut = Cut.of(operation, _with_positions(arguments, offered))
    job = jobs.get(cut.ranks)
    if job is None:
        own = f"{cut.ranks} rank{'s' * (cut.ranks > 1)}"
        raise NotApplicable(f"it is a call of {own}, and this run has {_list(jobs)}")
    calls = [cut.arguments_of(rank) for rank in range(cut.ranks)]
    results = job.run(operation, calls)
    want = OPERATIONS[operation].wanted(arguments)
    try:
        whole = tuple(map(partial(_join, cut), want, zip(*results, strict=True)))
    except Broken:
        job.end()
        raise
    return whole if len(whole) > 1 else whole[0]


def _join(cut: Cut, result: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Check that each rank has answered with its part, and put the parts together."""
    if not cut.shapes:
        return parts[0]  # the arrays of the call do not fit, and any result is wrong
    dtypes = [part.dtype for part in parts]
    own = cut.arguments["query"].dtype
    dtype = own if own in dtypes else dtypes[0]  # if all have another one, that is for the judge
    for rank, part in enumerate(parts):
        for what, right in (("shape", cut.shape_of(result, rank)), ("dtype", dtype)):
            if (got := getattr(part, what)) != right:
                raise Broken(
                    f"rank {rank} answered with another {what}: {result}: expected {right}, got {got}"
                )
    return cut.join(result, parts)


def _with_positions(arguments: Mapping[str, Any], offered: Sequence[str]) -> dict[str, Any]:
    """State the positions of queries and keys where they matter, if a rank takes both.

    A rank cannot know by the index of a row where it stands.
    """
    call = dict(arguments)
    if not {*_POSITIONS} <= {*offered} or not (call.get("is_causal") or call.get("window")):
        return call
    batch = call["query"].shape[:-3]
    offset = np.asarray(call.pop("query_offset", 0))
    for name, of, start in (("query_positions", "query", offset), ("key_positions", "key", 0)):
        if call.get(name) is None:
            places = np.arange(call[of].shape[-2])
            call[name] = np.broadcast_to(np.asarray(start)[..., None] + places, (*batch, len(places)))
    return call
