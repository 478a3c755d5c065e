"""A rule by which another project accepts an implementation of attention."""

from collections.abc import Callable
from dataclasses import dataclass

from tools.rivals.trial import Array, Draw, Trial

#: Whether the results of a call are accepted.
Accepts = Callable[[tuple[Array, ...], Trial], bool]


@dataclass(frozen=True)
class Rival:
    """A rule, with its inputs.

    Attributes
    ----------
    name : str
        The project, and what tells the rule from its others.
    source : str
        The address of the file that has the rule, at a commit or version.
    rule : str
        A description of the rule.
    inputs : str
        A description of the inputs that are used here, and of those of the source that are not.
    draw : callable
        Draws the trials.
    accepts : callable
        Takes the results of a call and its trial. An implementation is accepted if all its results are.
    """

    name: str
    source: str
    rule: str
    inputs: str
    draw: Draw
    accepts: Accepts
