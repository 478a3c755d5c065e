"""Relations: what holds between several calls, where no single call has an expected value."""

from collections.abc import Callable
from dataclasses import dataclass

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.verdict import Difference, Verdict

#: None where it holds; else what differs, or a sentence, or the verdict on one of the calls.
Found = Difference | Verdict | str | None


@dataclass(frozen=True)
class Relation:
    """One thing that holds between calls.

    Attributes
    ----------
    id : str
    title : str
        What holds, in a sentence.
    rules : tuple of str
        The rules it bears on, the one it is there for first.
    group : str
        What the relations of one kind have in common.
    calls : tuple of Case
        The calls that are made, as far as they do not depend on each other's results.
    run : callable
        Makes the calls on a backend, and says what does not hold.
    live : bool
        Whether answers in files cannot show it: a call is repeated, asked for less, made of what
        another has given, or must leave its inputs alone.
    """

    id: str
    title: str
    rules: tuple[str, ...]
    group: str
    calls: tuple[Case, ...]
    run: Callable[[Backend, tuple[Case, ...]], Found]
    live: bool = False

    @property
    def chapter(self) -> str:
        """That of its first call."""
        return self.calls[0].chapter

    @property
    def dtype(self) -> str:
        """That of its first call."""
        return self.calls[0].dtype

    @property
    def operation(self) -> str:
        """That of its first call."""
        return self.calls[0].operation

    @property
    def name(self) -> str:
        """Its id and its dtype."""
        return f"{self.id}-{self.dtype}"

    def holds(self, backend: Backend) -> Found:
        """Make the calls, and say what does not hold."""
        return self.run(backend, self.calls)
