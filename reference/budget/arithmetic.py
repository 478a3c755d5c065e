"""The arithmetic of a call, on which its budget depends besides its arguments."""

from dataclasses import dataclass

from attnspec.dtypes import Format
from attnspec.reference.budget.formats import Accuracy
from attnspec.reference.budget.profile import Profile


@dataclass(frozen=True)
class Arithmetic:
    """The formats and the accuracy class of a call.

    Attributes
    ----------
    storage, work, lse : Format
        The formats of the inputs and the result, of intermediate results, and of an lse.
    accuracy : {"full", "cast", "storage"}
    profile : Profile
        How matrix products are computed.
    """

    storage: Format
    work: Format
    lse: Format
    accuracy: Accuracy
    profile: Profile

    @property
    def casts(self) -> bool:
        """Whether intermediate results are rounded to a shorter format."""
        return self.accuracy == "cast" and self.storage.unit > self.work.unit
