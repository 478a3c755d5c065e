"""What a call is computed in: what its budget depends on beside its arguments."""

from dataclasses import dataclass

from attnspec.dtypes import Format
from attnspec.reference.budget.formats import Accuracy
from attnspec.reference.budget.profile import Profile


@dataclass(frozen=True)
class Arithmetic:
    """What a call is computed in.

    Attributes
    ----------
    storage, work, lse : Format
        Of the inputs and the result, of what is computed in between, and of an lse.
    accuracy : {"full", "cast", "storage"}
    profile : Profile
        How products of matrices are computed.
    """

    storage: Format
    work: Format
    lse: Format
    accuracy: Accuracy
    profile: Profile

    @property
    def casts(self) -> bool:
        """Whether what is computed is rounded to a shorter format on the way."""
        return self.accuracy == "cast" and self.storage.unit > self.work.unit
