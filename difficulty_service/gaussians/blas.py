"""Matrix products with triangular matrices, which NumPy lacks, from the BLAS inside SciPy.

These functions call the BLAS that SciPy exports for compiled code. SciPy's Python functions hold
the interpreter lock while they run, so that threads could not work in parallel.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg.cython_blas
from numpy.typing import NDArray
from scipy import LowLevelCallable

PREFIX = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
"""First letter of a BLAS function's name, by dtype."""

Value = ctypes.c_char | ctypes.c_int | ctypes.c_float | ctypes.c_double

ONE: dict[np.dtype[Any], Value] = {
    np.dtype(np.float32): ctypes.c_float(1),
    np.dtype(np.float64): ctypes.c_double(1),
}


def add_upper_gram(rows: NDArray[Any], total: NDArray[Any]) -> None:
    """Adds the upper triangle of rowsᵀ rows in place, for half the cost of the full product.

    Rows (samples, dim) and the total (dim, dim) are float32 or float64, both the same, and
    C-contiguous. The total is not changed below the diagonal.
    """
    _require_square_beside(rows, total)
    count, dim = rows.shape
    # BLAS is column-major and reads these matrices transposed: its lower triangle is our upper.
    lower, plain = ctypes.c_char(b"L"), ctypes.c_char(b"N")
    size, depth, one = ctypes.c_int(dim), ctypes.c_int(count), ONE[rows.dtype]
    _function("syrk", rows.dtype)(
        *_pointers(lower, plain, size, depth, one),
        rows.ctypes.data,
        *_pointers(size, one),
        total.ctypes.data,
        *_pointers(size),
    )


def multiply_by_triangle(rows: NDArray[Any], triangle: NDArray[Any], *, upper: bool) -> None:
    """Multiplies rows by a triangular matrix from the right, in place, for half the cost.

    As for `add_upper_gram`; of the matrix only the upper triangle is read, or else the lower.
    """
    _require_square_beside(rows, triangle)
    count, dim = rows.shape
    left, half = ctypes.c_char(b"L"), ctypes.c_char(b"L" if upper else b"U")
    plain, size, width = ctypes.c_char(b"N"), ctypes.c_int(dim), ctypes.c_int(count)
    _function("trmm", rows.dtype)(
        *_pointers(left, half, plain, plain, size, width, ONE[rows.dtype]),
        triangle.ctypes.data,
        *_pointers(size),
        rows.ctypes.data,
        *_pointers(size),
    )


def _pointers(*values: Value) -> list[Any]:
    """BLAS takes all arguments by pointer, including numbers and letters."""
    return [ctypes.byref(value) for value in values]


@cache
def _function(name: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    """A BLAS function of pointers, which runs without the interpreter lock."""
    capsule = LowLevelCallable.from_cython(scipy.linalg.cython_blas, PREFIX[dtype] + name)
    pointers = [ctypes.c_void_p] * capsule.signature.count("*")
    address = _address(capsule.function, capsule.signature.encode())
    return ctypes.CFUNCTYPE(None, *pointers)(address)


_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _require_square_beside(rows: NDArray[Any], square: NDArray[Any]) -> None:
    """Checks what BLAS does not: a wrong shape would let it write into other memory."""
    usable = all(array.dtype in PREFIX and array.flags.c_contiguous for array in (rows, square))
    if not usable or rows.ndim != 2 or rows.dtype != square.dtype:  # noqa: PLR2004
        raise ValueError(
            "expected two C-contiguous matrices, both float32 or both float64, but got "
            f"{rows.dtype} of shape {rows.shape} and strides {rows.strides} beside "
            f"{square.dtype} of shape {square.shape} and strides {square.strides}"
        )
    if square.shape != (rows.shape[1],) * 2:
        raise ValueError(f"a square of shape {square.shape} does not fit rows of {rows.shape}")
