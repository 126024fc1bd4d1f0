"""Reads the pickles of CIFAR without running anything that they contain.

A pickle is a program: it may call any function that it can name. The files of CIFAR name three,
which rebuild a NumPy array. Here these names stand for a class that only records its arguments, and
any other name is an error. Not even NumPy's own functions are called, because they trust the
lengths and types that a pickle states.
"""

import io
import pickle
import pickletools

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.published.members import damaged

_RECORDED = frozenset(
    (module, name)
    for module, names in {
        "numpy": ("dtype", "ndarray"),
        "numpy.core.multiarray": ("_reconstruct",),
        "numpy._core.multiarray": ("_reconstruct",),
    }.items()
    for name in names
)
_BYTES = (b"u1", "u1")
_STATE_LENGTH = 5
_MAX_TUPLES = 64


class PickledObject:
    """The arguments and the state of a NumPy object in a pickle, none of which is interpreted."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _RefusedName(Exception):
    """A name in a pickle that is none of an array's."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[PickledObject]:
        if (module, name) not in _RECORDED:
            raise _RefusedName(f"{module}.{name}")
        return PickledObject


def read_pickle(data: bytes, name: str) -> dict[str, object]:
    """Reads a pickled dictionary of numbers, text, lists and NumPy arrays.

    Args:
        data: The whole file.
        name: Name of the file, for messages.

    Returns:
        Values by key. Text of Python 2 is bytes; an array is a `PickledObject`.

    Raises:
        DatasetError: The pickle is damaged, or refers to anything else.
    """
    try:
        _check_instructions(data)
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
    except _RefusedName as error:
        raise DatasetError(
            f"{name!r} is a pickle that names {error}, which could run any program and which CIFAR "
            "does not need; nothing was run",
            "fetch the file from its authors",
        ) from error
    except Exception as error:
        raise damaged(name, error) from error
    if not isinstance(content, dict):
        raise damaged(name, f"it holds a {type(content).__name__} and not a dictionary")
    return {_as_text(key): value for key, value in content.items()}


def pixel_offset(data: bytes, value: object, name: str, row_length: int) -> tuple[int, int]:
    """Where a pickle holds the bytes of a two-dimensional uint8 array.

    Args:
        data: The whole file.
        value: The array as read by `read_pickle`.
        name: Name of the file, for messages.
        row_length: Expected number of bytes in a row.

    Returns:
        Offset of the first byte, and number of rows.

    Raises:
        DatasetError: The value is not such an array in C order, or its length is not its shape's.
    """
    state = value.state if isinstance(value, PickledObject) else None
    if not isinstance(state, tuple) or len(state) != _STATE_LENGTH:
        raise damaged(name, "it has no array 'data'")
    _, shape, dtype, is_fortran, content = state
    if not isinstance(dtype, PickledObject) or dtype.arguments[:1] not in [(t,) for t in _BYTES]:
        raise damaged(name, "the array 'data' is not of type uint8")
    rows = len(content) // row_length if isinstance(content, bytes) else 0
    if not rows or is_fortran or shape != (rows, row_length) or len(content) != rows * row_length:
        raise damaged(
            name, f"the array 'data' has the shape {shape}, expected (images, {row_length})"
        )
    offset = data.find(content)
    if offset < 0:
        raise DatasetError(
            f"{name!r} does not hold its pixels as plain bytes", "write it with pickle protocol 4"
        )
    return offset, rows


def as_labels(value: object, name: str, key: str) -> list[int]:
    """A list of integers in a pickle.

    Raises:
        DatasetError: The value is not a list of integers.
    """
    if not isinstance(value, list) or not all(isinstance(label, int) for label in value):
        raise damaged(name, f"it has no list of integers {key!r}")
    return value


def as_names(value: object, name: str, key: str) -> tuple[str, ...]:
    """A list of texts in a pickle.

    Raises:
        DatasetError: The value is not a list of texts.
    """
    if not isinstance(value, list) or not all(isinstance(text, bytes | str) for text in value):
        raise damaged(name, f"it has no list of texts {key!r}")
    return tuple(_as_text(text) for text in value)


def _as_text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _check_instructions(data: bytes) -> None:
    """Refuses a pickle that would make the unpickler itself fill the memory or the stack.

    Raises:
        pickle.UnpicklingError: An index of the memo is above the number of instructions before it,
            or there are more tuples than arrays need, which might be nested.
    """
    num_tuples = 0
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if opcode.name in ("PUT", "LONG_BINPUT") and not 0 <= int(argument or 0) <= count:
            raise pickle.UnpicklingError(f"its memo has the index {argument}")
        num_tuples += opcode.name.startswith(("TUPLE", "FROZENSET"))
        if num_tuples > _MAX_TUPLES:
            raise pickle.UnpicklingError(f"it holds more than {_MAX_TUPLES} tuples")
