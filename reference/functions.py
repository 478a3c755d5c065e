"""The operations as functions: of anything that NumPy converts, and of arrays of any library."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from inspect import Parameter, Signature
from textwrap import dedent
from typing import Any

import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from attnspec import OPERATIONS, Operation
from attnspec.dtypes import FORMATS, name_of
from attnspec.operations import Argument, Output
from attnspec.operations.letters import BATCH
from attnspec.reference.call import STEPS, Call, Step, Steps
from attnspec.reference.captured import captures
from attnspec.reference.errors import ArgumentError, need_kind
from attnspec.reference.numpy_namespace import xp
from attnspec.tables import kind_of, shape_of

_KINDS = {name: argument.kind for form in OPERATIONS.values() for name, argument in form.arguments.items()}
#: Arguments that are never arrays: numbers, flags, words and pairs of numbers.
_PLAIN = frozenset(name for name, kind in _KINDS.items() if kind not in ("array", "integers"))
#: Arguments that are one integer or an array of integers.
_PER_ENTRY = frozenset(name for name, kind in _KINDS.items() if kind == "integers")

#: The annotation of each kind of argument, as help shows it.
_ANNOTATIONS: Mapping[str, str] = {
    "array": "ArrayLike",
    "integers": "ArrayLike",
    "number": "float",
    "integer": "int",
    "flag": "bool",
    "window": "tuple[int | None, int | None]",
    "word": "str",
}
#: The function of a call that computes each operation.
_COMPUTES: dict[str, Step] = {}


def public(compute: Step) -> Callable[..., Any]:
    """Return the function of an operation that users call, with the signature of the declaration.

    It takes everything that NumPy converts to arrays, and the dtype in which to compute. The name of
    `compute` is the name of the operation and ``_of``. Its docstring has the first sentence, the notes and
    the examples.
    """
    name = compute.__name__.removesuffix("_of")
    _COMPUTES[name] = compute
    run = _public(name, compute.__doc__ or "")
    run.__module__ = compute.__module__
    return run


def _public(name: str, text: str) -> Callable[..., Any]:
    signature, compute = _signature(name, with_dtype=True), _COMPUTES[name]
    bind = _binder(name, with_dtype=True)

    def run(*arrays: Any, **options: Any) -> Any:
        return evaluate(compute, bind(arrays, options))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = _docstring(OPERATIONS[name], text)
    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect.signature
    return run


def declare(name: str, compute: Step) -> None:
    """Store the function that computes an operation without a function of its own in this package."""
    _COMPUTES[name] = compute


@cache
def function(name: str) -> Callable[..., Any]:
    """Return the function of an operation by its name in `attnspec.OPERATIONS`.

    It is the way to the operations that combine forms. Those of a single form have functions of their
    names in this package.

    Parameters
    ----------
    name : str
        The name of an operation.

    Returns
    -------
    callable
        The function, which takes arrays or nested lists, and the argument `dtype`.

    Raises
    ------
    KeyError
        If no operation has the name.

    Notes
    -----
    Source: the rule STACK-1.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import function
    >>> pages = np.array([1.0, 2.0, 4.0, 8.0]).reshape(2, 1, 2, 1)  # two pages of two positions
    >>> serve = function("packed_paged_attention")
    >>> serve(
    ...     np.zeros((1, 3, 1)),
    ...     0 * pages,
    ...     pages,
    ...     query_starts=[0, 2, 3],
    ...     block_table=[[1], [0]],
    ...     key_lengths=[2, 1],
    ...     is_causal=True,
    ... ).tolist()
    [[[4.0], [6.0], [1.0]]]
    """
    if name not in _COMPUTES:
        raise KeyError(f"name: expected one of {', '.join(OPERATIONS)}, got {name!r}")
    return _public(name, f"{name.replace('_', ' ').capitalize()}.\n\n    ")


def evaluate(compute: Step, arguments: Mapping[str, Any]) -> Any:
    """Compute with NumPy arrays or nested lists, in the precision of the argument ``dtype``."""
    dtype = np.dtype(arguments["dtype"])
    dtypes = (getattr(argument, "dtype", None) for argument in arguments.values())
    leading = next((each for each in dtypes if name_of(each) in FORMATS), dtype)
    arrays = {name: _array(name, x, leading) for name, x in arguments.items() if name != "dtype"}
    with np.errstate(all="ignore"):  # NUM-11 to NUM-14 define non-finite results
        return compute(Call(Steps(), xp, dtype), **arrays)


def _array(name: str, x: Any, leading: Any) -> Any:
    """Convert an argument to an array. A list, which has no dtype, takes the dtype of the others."""
    if x is None or name in _PLAIN or (name in _PER_ENTRY and not isinstance(x, list | tuple)):
        return x
    try:
        array = np.array(x)  # a copy: what a caller writes into a result changes no input
    except ValueError as error:  # ragged nested lists
        raise ArgumentError(f"{name}: expected an array, got {type(x).__name__} ({error})") from error
    return array.astype(leading) if array.dtype.kind == "f" and not hasattr(x, "dtype") else array


def functions(
    steps: Mapping[str, Step] | None = None,
    *,
    compiler: Callable[[Step], Step] | None = None,
    constant: Callable[[Any], Any] | None = None,
) -> "Functions":
    """Return the operations for arrays of any library. They use Array API calls only.

    Results have the dtype of the first array. Half precision is computed in float32. Lists and other
    objects that are not arrays are refused.

    Parameters
    ----------
    steps : mapping of str to callable, optional
        Replacements of steps, by name. Each takes the arguments of the step, of which a call is the
        first. Inside a replacement, the name means the original step.
    compiler : callable, optional
        Compiles the parts that read shapes only, as ``jax.jit`` does. It is meant for libraries that
        would otherwise compile each operation by itself.
    constant : callable, optional
        Returns an array through which no derivative flows. It is meant for libraries that differentiate.

    Returns
    -------
    mapping of str to callable
        The functions, by their names in `attnspec.OPERATIONS`, with the canonical signatures.

    Raises
    ------
    KeyError
        If a name is not the name of a step.

    Notes
    -----
    Source: the Python array API standard, 2024.12 or later.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import functions
    >>> from attnspec.reference.masking import by_mask
    >>> ones, mask = np.ones((2, 1), np.float32), np.array([True, False])
    >>> functions()["attention"](ones[:1], ones, np.array([[1.0], [3.0]], np.float32), mask=mask)
    array([[1.]], dtype=float32)
    >>> inverted = functions({"by_mask": lambda call: ~by_mask(call)})
    >>> inverted["attention"](ones[:1], ones, np.array([[1.0], [3.0]], np.float32), mask=mask)
    array([[3.]], dtype=float32)
    """
    replaced = {} if steps is None else steps
    unknown = replaced.keys() - STEPS.keys()
    if unknown:
        raise KeyError(f"steps: expected some of {', '.join(STEPS)}, got {', '.join(sorted(unknown))}")
    shared = Steps(replaced, compiler, constant)
    return Functions(shared, tuple(OPERATIONS))


class Functions(Mapping[str, Step]):
    """The functions of some operations. Each is made when it is needed: the gallery needs few of many."""

    def __init__(self, steps: Steps, names: tuple[str, ...]) -> None:
        self._steps, self._names, self._made = steps, names, dict[str, Step]()

    def __getitem__(self, name: str) -> Step:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = _function(name, self._steps)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def companions(self) -> Mapping[str, Step]:
        """Return the functions of all operations but attention."""
        return Functions(self._steps, tuple(name for name in self._names if name != "attention"))


def _function(name: str, steps: Steps) -> Step:
    compute, signature, first = _COMPUTES[name], _signature(name), OPERATIONS[name].arrays[0]
    bind = _binder(name)

    def run(*arrays: Any, **options: Any) -> Any:
        arguments = bind(arrays, options)
        leading = arguments[first]
        need_kind(first, is_array_api_obj(leading), "an array", leading, "ERR-2")
        with np.errstate(all="ignore"):  # NUM-11 to NUM-14 define non-finite results
            return compute(Call(steps, array_namespace(leading), None), **arguments)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = (compute.__doc__ or "").partition("\n")[0]
    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect.signature
    if steps.compiler is None and steps.constant is None:  # other libraries compile what they capture
        run.captured = captures(run, bind, steps)  # type: ignore[attr-defined] # read by `backends.captured`
    return run


@cache  # the gallery makes functions for each bug
def _binder(
    name: str, *, with_dtype: bool = False
) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """Return a function that gives all arguments of a call by name, those not given at their defaults."""
    signature = _signature(name, with_dtype=with_dtype)
    defaults = {known: parameter.default for known, parameter in signature.parameters.items()}
    required = {known for known, default in defaults.items() if default is Parameter.empty}
    positional = [argument.name for argument in OPERATIONS[name].positional]

    def bind(arrays: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        given = dict(zip(positional, arrays, strict=False)) | options
        bound = defaults | given
        none_twice = len(given) == len(arrays) + len(options)
        if not (none_twice and len(bound) == len(defaults) and required <= given.keys()):
            try:
                signature.bind(*arrays, **options)  # which is slow, and says what is wrong
            except TypeError as error:
                raise TypeError(f"{name}(): {error}") from None
        return bound

    return bind


@cache
@cache
def _signature(name: str, *, with_dtype: bool = False) -> Signature:
    form = OPERATIONS[name]
    parameters = [
        Parameter(
            argument.name,
            Parameter.POSITIONAL_OR_KEYWORD if argument in form.positional else Parameter.KEYWORD_ONLY,
            default=Parameter.empty if argument.required else argument.default,
            annotation=_ANNOTATIONS[argument.kind] + (" | None" if argument.default is None else ""),
        )
        for argument in form.arguments.values()
    ]
    if with_dtype:
        dtype = Parameter("dtype", Parameter.KEYWORD_ONLY, default=np.float64, annotation="DTypeLike")
        parameters.append(dtype)
    return Signature(parameters, return_annotation="Any")


def _docstring(form: Operation, text: str) -> str:
    """Insert what follows from the declaration before the notes and the examples of a docstring."""
    summary, heading, rest = dedent(f"    {text}").partition("Notes\n-----\n")
    if not heading:
        summary, heading, rest = summary.partition("Examples\n--------\n")
    lines = ["Parameters", "----------"]
    for argument in form.arguments.values():
        optional = "" if argument.required else ", optional"
        default = (
            f"; {argument.default!r} by default" if optional and argument.default not in (None, False) else ""
        )
        lines.append(f"{argument.name} : {_holds(argument, form)}{optional}")
        lines.append(f"    {argument.meaning[0].upper()}{argument.meaning[1:]}{default} ({argument.rule}).")
    lines += ["dtype : data type, optional", "    Working precision and dtype of the results.", ""]
    lines += ["Returns", "-------"]
    for output in form.results:
        condition = output.option or (output.of if output.of in form.options else "")
        lines.append(f"{output.name} : {_shape(output, form)}")
        lines.append(f"    {f'Only with ``{condition}`` ' if condition else 'Always '}({output.rule}).")
    lines += ["", "Raises", "------", "ArgumentError"]
    lines += ["    If an argument is refused. The message names the argument and the rule.", "", ""]
    return summary + "\n".join(lines) + heading + rest


def _holds(argument: Argument, form: Operation) -> str:
    """Return what an argument holds, and its shape: ``booleans, broadcasts to (*B, Hq, L, S)``."""
    broadcasts = f", broadcasts{' by blocks' if argument.by_blocks else ''} to" if argument.broadcasts else ""
    return f"{kind_of(argument)}{broadcasts} {_shape(argument, form)}".rstrip()


def _shape(array: Argument | Output, form: Operation) -> str:
    """Return the shape of an array, and that of one head without the axes of batch and heads."""
    shapes = [shape_of(array)]
    if form.headless and array.shape[:1] == (BATCH,) and len(array.shape) > 2:
        shapes.append(shape_of(replace(array, shape=array.shape[2:])))
    return " or ".join(shapes)
