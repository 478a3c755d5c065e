"""What can be wrong with a backend, or with a call of it."""


class BackendError(Exception):
    """A backend that cannot be used, in one line: what was asked for, got and expected."""


class Unsupported(Exception):  # noqa: N818 - a verdict, not a fault
    """A call that the implementation does not offer, as its documentation says.

    An adapter raises it for what a signature cannot tell, such as two arguments
    that may not be given together.
    """


class Broken(Exception):  # noqa: N818 - a verdict on an implementation, not a fault of ours
    """A call that came to no end of its own: a crash, no answer in time, an answer that is none.

    It is neither a result nor a refusal, and stands for neither.
    """


class Late(Broken):
    """A call that had no answer in time."""
