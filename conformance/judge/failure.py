"""Failures: a rule that does not hold, and what was seen."""

from attnspec import find_rule


class Failure(AssertionError):  # noqa: N818 - the word of the standard, as pass and deviation are
    """A rule is broken.

    Attributes
    ----------
    rule : str
        The rule's id.
    finding : str
        What was got and what was expected.
    """

    def __init__(self, rule: str, finding: str) -> None:
        super().__init__(rule, finding)
        self.rule = rule
        self.finding = finding

    def __str__(self) -> str:
        rule = find_rule(self.rule)
        return f"{rule.id} {rule.title}\n{self.finding}"


class Raised(Exception):  # noqa: N818 - it reports an error of somebody else
    """The implementation raised instead of returning.

    Attributes
    ----------
    error : BaseException
        What it raised.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error

    def __str__(self) -> str:
        text = str(self.error).strip() or "no message"
        return f"raised {type(self.error).__name__}: {text}"
