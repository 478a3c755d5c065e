"""An operation: its arguments and its outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from attnspec.operations.argument import Argument, Output, Role


@dataclass(frozen=True)
class Operation:
    """One function of the standard.

    Attributes
    ----------
    positional : tuple of Argument
        The arrays, which are given by position.
    named : tuple of Argument
        Those that are given by name alone.
    results : tuple of Output
        What can be asked for; the first is always returned. Each later one is
        returned when its option is true, or when the argument whose gradient it is
        is given, after those before it.
    headless : bool
        Whether arrays of two axes are those of one head, without the axes of batch
        and heads (SHAPE-2).
    otherwise : mapping of str to (str, str)
        What a letter is where an argument is not given: ``{"S": ("memory", "L")}`` is
        as many keys as queries where there is no memory.
    """

    positional: tuple[Argument, ...]
    named: tuple[Argument, ...]
    results: tuple[Output, ...]
    headless: bool = False
    otherwise: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)

    @cached_property
    def arguments(self) -> Mapping[str, Argument]:
        """Every argument by its name, in order."""
        return MappingProxyType({one.name: one for one in (*self.positional, *self.named)})

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """Names of the positional arguments, in order."""
        return tuple(one.name for one in self.positional)

    @cached_property
    def options(self) -> tuple[str, ...]:
        """Names of the keyword-only arguments."""
        return tuple(one.name for one in self.named)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of what can be asked for, the one that is always returned first."""
        return tuple(one.name for one in self.results)

    def wanted(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Name the outputs that a call returns.

        Examples
        --------
        >>> from attnspec import OPERATIONS
        >>> OPERATIONS["attention"].wanted({"return_weights": True})
        ('output', 'weights')
        >>> OPERATIONS["attention_vjp"].wanted({"query": 1, "key": 1, "value": 1, "bias": 1})
        ('d_query', 'd_key', 'd_value', 'd_bias')
        """
        return tuple(
            one.name
            for one in self.results
            if (
                arguments.get(one.of) is not None
                if one.of
                else arguments.get(one.option, not one.option) is True
            )
        )

    def names(self, role: Role) -> tuple[str, ...]:
        """Names of the arguments that have a role.

        Examples
        --------
        >>> from attnspec import OPERATIONS
        >>> OPERATIONS["attention"].names("scores")
        ('scale', 'softcap', 'bias')
        """
        return tuple(name for name, one in self.arguments.items() if role in one.role)

    def together(self, name: str) -> tuple[str, ...]:
        """Name what has to be left out of a call when an argument is, that one first.

        Examples
        --------
        >>> from attnspec import OPERATIONS
        >>> OPERATIONS["attention"].together("dropout_mask")
        ('dropout_mask', 'dropout_rate')
        """
        return (name, *(other.name for other in self.named if name in other.needs))
