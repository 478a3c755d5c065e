"""Relations between several calls, for rules that no single call can show."""

from collections.abc import Callable
from dataclasses import dataclass

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.verdict import Difference, Verdict

#: None if the relation holds. Otherwise a difference, a sentence, or the verdict on one of the calls.
Found = Difference | Verdict | str | None


@dataclass(frozen=True)
class Relation:
    """A relation that must hold between calls.

    Attributes
    ----------
    id : str
    title : str
        A sentence that states the relation.
    rules : tuple of str
        The rules that it tests, the main one first.
    group : str
        The name of its group.
    calls : tuple of Case
        The calls that do not depend on the results of other calls.
    run : callable
        Makes the calls on a backend, and returns what does not hold.
    bits : bool
        Whether it compares only the bits of results, so that it needs no expected values.
    live : bool
        Whether it needs a live backend, and cannot be judged from stored answers: it repeats a call,
        asks for fewer outputs, uses the result of another call, or checks that inputs do not change.
    """

    id: str
    title: str
    rules: tuple[str, ...]
    group: str
    calls: tuple[Case, ...]
    run: Callable[[Backend, tuple[Case, ...]], Found]
    live: bool = False
    bits: bool = False

    @property
    def chapter(self) -> str:
        """The chapter of its first call."""
        return self.calls[0].chapter

    @property
    def dtype(self) -> str:
        """The dtype of its first call."""
        return self.calls[0].dtype

    @property
    def operation(self) -> str:
        """The operation of its first call."""
        return self.calls[0].operation

    @property
    def name(self) -> str:
        """Its id and its dtype."""
        return f"{self.id}-{self.dtype}"

    def holds(self, backend: Backend) -> Found:
        """Make the calls, and return what does not hold."""
        return self.run(backend, self.calls)
