"""Settings of a backend, from its name or from a configuration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attnspec.backends.errors import BackendError
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.conversion import Conversion
from attnspec.dtypes import DTYPES


@dataclass(frozen=True)
class Settings:
    """Settings of a backend.

    Attributes
    ----------
    array : str
        The array library: one of `LIBRARIES`, or a module with ``asarray``.
    device : str
        The device for its arrays, as the library names it.
    dtypes : tuple of str
        The dtypes to judge it in.
    convention : Convention or None
        Its names and layout.
    fields : mapping
        Other fields of its `Backend`.
    conversion : Conversion or None
        How its arrays are made from NumPy arrays, if it takes none of `array`.
    """

    array: str = ""
    device: str = ""
    dtypes: tuple[str, ...] = ()
    convention: Convention | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    conversion: Conversion | None = None
    operation: str = ""

    def over(self, other: "Settings") -> "Settings":
        """Merge with other settings; these take precedence.

        Examples
        --------
        >>> from attnspec.backends.user.settings import Settings
        >>> Settings(device="cuda").over(Settings("torch", "cpu")).device
        'cuda'
        """
        return Settings(
            self.array or other.array,
            self.device or other.device,
            self.dtypes or other.dtypes,
            self.convention or other.convention,
            {**other.fields, **self.fields},
            self.conversion or other.conversion,
            self.operation or other.operation,
        )


def settings_of(name: str, options: Mapping[str, str]) -> Settings:
    """Read the options after the name of a backend.

    Examples
    --------
    >>> from attnspec.backends.user.settings import settings_of
    >>> settings_of("m:f", {"array": "torch", "dtype": "float16,float32"}).dtypes
    ('float16', 'float32')
    """
    unknown = set(options) - {"array", "device", "dtype"}
    if unknown:
        raise BackendError(
            f"backend {name}: expected the options array, device, dtype, got {', '.join(unknown)}"
        )
    dtypes = tuple(options["dtype"].split(",")) if "dtype" in options else ()
    if not set(dtypes) <= set(DTYPES):
        raise BackendError(
            f"backend {name}: dtype: expected some of {', '.join(DTYPES)}, got {options['dtype']}"
        )
    return Settings(options.get("array", ""), options.get("device", ""), dtypes)


def check_options(names: Iterable[str]) -> None:
    """Check the options after the names of backends, before anything is loaded.

    Examples
    --------
    >>> from attnspec.backends.user.settings import check_options
    >>> check_options(["m:f?dtype=float31"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    attnspec.backends.errors.BackendError: backend m:f?dtype=float31: dtype: expected some of float16, ...
    """
    from attnspec.backends.names import OFFLINE, PROGRAM, UNTRUSTED, split_options

    for name in names:
        if not name.startswith((PROGRAM, OFFLINE, UNTRUSTED)):  # these have other options
            settings_of(name, split_options(name)[1])
