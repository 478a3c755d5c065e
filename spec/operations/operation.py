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
        The arguments that are given by name only.
    results : tuple of Output
        The outputs, in the order in which they are returned. The first is always
        returned, a later one if its option is true, a gradient if its argument is
        given.
    forward : tuple of Argument
        Results of the operation whose gradients it computes. A function may take
        them by name, and is given them then. Cases do not contain them.
    headless : bool
        Whether arrays of two axes stand for one head, without axes for batch and
        heads (SHAPE-2).
    otherwise : mapping of str to (str, str)
        The size of a letter if an argument is absent: ``{"S": ("memory", "L")}`` means
        that without a memory there are as many keys as queries.
    reduces : str
        The operation whose result it has, for arguments of the same names and others that
        follow from its own. Empty if it is defined by itself.
    """

    positional: tuple[Argument, ...]
    named: tuple[Argument, ...]
    results: tuple[Output, ...]
    forward: tuple[Argument, ...] = ()
    headless: bool = False
    otherwise: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)
    reduces: str = ""

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
    def offers(self) -> tuple[str, ...]:
        """Names that a function may take besides the arrays: the options, and results of the forward pass.

        Examples
        --------
        >>> from attnspec import OPERATIONS
        >>> OPERATIONS["attention_vjp"].offers[-2:]
        ('output', 'lse')
        """
        return (*self.options, *(one.name for one in self.forward))

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, starting with the one that is always returned."""
        return tuple(one.name for one in self.results)

    @cached_property
    def differentiates(self) -> bool:
        """Whether its outputs are gradients, as those of a vector-Jacobian product are."""
        return any(one.of for one in self.results)

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
        """Return the names of the arguments that have a role.

        Examples
        --------
        >>> from attnspec import OPERATIONS
        >>> OPERATIONS["attention"].names("scores")
        ('scale', 'softcap', 'bias')
        """
        return tuple(name for name, one in self.arguments.items() if role in one.role)

    def together(self, name: str) -> tuple[str, ...]:
        """Return the arguments that must be left out together with one, starting with that one.

        Examples
        --------
        >>> from attnspec import OPERATIONS
        >>> OPERATIONS["attention"].together("dropout_mask")
        ('dropout_mask', 'dropout_rate')
        """
        return (name, *(other.name for other in self.named if name in other.needs))
