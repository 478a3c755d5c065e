"""Text from outside: what an implementation raises and how it is called, made fit to be shown anywhere."""

#: Longer texts than this are cut.
_MOST = 2000


def plain(text: str) -> str:
    r"""Replace what is not printed as it stands: control characters, lone surrogates, marks of direction.

    Examples
    --------
    >>> from attnspec.conformance.report.outside import plain
    >>> plain("red: \x1b[31m")
    'red: �[31m'
    """
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


def cut(text: str) -> str:
    """Cut a text that is too long, and say so.

    Examples
    --------
    >>> from attnspec.conformance.report.outside import cut
    >>> cut("x" * 2500)[-25:]
    'x... and 500 characters more'
    """
    return text if len(text) <= _MOST else f"{text[:_MOST]}... and {len(text) - _MOST} characters more"


def one_line(text: str) -> str:
    r"""Make one line of a text, cut where it is too long.

    Examples
    --------
    >>> from attnspec.conformance.report.outside import one_line
    >>> one_line("a\n  b")
    'a b'
    """
    return cut(plain(" ".join(text[: 2 * _MOST].split())))
