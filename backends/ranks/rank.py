"""The process of one rank: a user's function is served over the protocol, with what it must know of its rank.

The function has the arguments of attention, and is called with the arrays of its rank. If its signature has
the boundaries, `rank` or `ranks`, it is given them.
"""

import faulthandler
import inspect
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend, for_release, no_attention
from attnspec.backends.errors import BackendError
from attnspec.backends.library import library_of
from attnspec.backends.names import split_options
from attnspec.backends.program.serve import serve, take_streams, until_closed
from attnspec.backends.ranks.cut import BOUNDARIES, is_sharded
from attnspec.backends.user.configuration import configuration_of, read_configuration
from attnspec.backends.user.function import as_function, backend_of
from attnspec.backends.user.place import find, put_on_path
from attnspec.backends.user.settings import settings_of_options, settings_of_table
from attnspec.backends.user.signature import note_unknown_parameters

_FORM = "sharded_"


class Rank:
    """What the function of a rank may ask for, besides the arguments of attention."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._known: dict[str, Any] = {"rank": rank, "ranks": ranks}
        self._takes: set[str] = set()

    def bind(self, name: str, target: Any) -> Callable[..., Any]:
        """Wrap a function: what it takes of the boundaries and of its rank is given to it in each call."""
        function = as_function(name, target)
        known = inspect.signature(function)
        takes = [own for own in (*BOUNDARIES.values(), *self._known) if own in known.parameters]
        self._takes |= {*takes}

        def run(*arrays: Any, **options: Any) -> Any:
            try:
                return function(*arrays, **options, **{own: self._known.get(own) for own in takes})
            except Exception as error:
                error.add_note(_place_of(error))
                raise

        left = [parameter for own, parameter in known.parameters.items() if own not in takes]
        run.__dict__ |= getattr(target, "__dict__", {})  # what a decorator has said
        run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
        run.__signature__ = known.replace(parameters=left)  # type: ignore[attr-defined] # read by inspect
        return run

    def bind_all(self, name: str, companions: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
        """Wrap companions. That of a sharded operation is called as the operation on the arrays of a rank."""
        return {x.removeprefix(_FORM): self.bind(name, function) for x, function in companions.items()}

    def shard_backend(self, backend: Backend) -> Backend:
        """Return a backend with the sharded operations, each by the operation on the arrays of a rank."""
        functions = {x: backend.function(x.removeprefix(_FORM)) for x in OPERATIONS if is_sharded(x)}
        companions = {
            x: self._add_boundaries(function) for x, function in functions.items() if function is not None
        }
        return replace(backend, attention=no_attention, companions=companions)

    def _add_boundaries(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Add the boundaries to a function. Parts of heads are offered only if they are asked for."""
        known = inspect.signature(function)
        shards = [x for letter, x in BOUNDARIES.items() if letter != "Hq" or x in self._takes]
        more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in shards]

        def run(*arrays: Any, **options: Any) -> Any:
            self._known |= {name: options.pop(name, None) for name in shards}
            return function(*arrays, **options)

        run.__dict__ |= {own: x for own, x in vars(function).items() if own == "convention"}
        run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
        run.__signature__ = known.replace(parameters=[*known.parameters.values(), *more])  # type: ignore[attr-defined] # read by inspect
        return run


def _place_of(error: Exception) -> str:
    """Return the innermost line that raised and is not in an installed package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [x for x in frames if "site-packages" not in x.filename and Path(x.filename) != Path(__file__)]
    frame = (own or frames)[-1]
    return f"at {Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"


def load_rank(name: str) -> Backend:
    """Load a function as that of this rank."""
    rank = Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    place, options = split_options(name)
    settings = settings_of_options(name, options)
    path = configuration_of(place)
    if path is not None:
        put_on_path(path.parent)
        table = read_configuration(name, path)
        settings = settings.over(settings_of_table(f"backend {name}: {path.name}", name, table))
        place = table["function"]
    module, target = find(name, place)
    fields = dict(settings.fields)
    if "companions" in fields:
        fields["companions"] = rank.bind_all(name, fields["companions"])
    settings = replace(settings, fields=fields, operation="")
    if isinstance(target, Backend):
        own = rank.bind_all(name, target.companions)
        target = replace(target, attention=rank.bind(name, target.attention), companions=own)
    else:
        target = rank.bind(name, target)
    backend = backend_of(name, target, settings, library_of(module), "attention")
    return rank.shard_backend(note_unknown_parameters(for_release(backend)))


def main() -> None:
    """Serve the function that the command names."""
    lines, write = take_streams()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that has started this one ends it
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, all_threads=False)
    try:
        backend = load_rank(sys.argv[1])
    except BackendError as error:
        write(json.dumps({"problem": str(error)}))
        return
    serve(backend, until_closed(lines), write)


if __name__ == "__main__":
    main()
