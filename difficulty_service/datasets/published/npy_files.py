"""Headers of NumPy files, whose content is read without allocating what a damaged header claims."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from difficulty_service.datasets.published.members import Member, damaged
from difficulty_service.datasets.storage import open_file


@dataclass(frozen=True)
class NpyHeader:
    """What a NumPy file holds.

    Attributes:
        offset: Offset of the first value.
        shape: Shape of the array, in C order.
        dtype: Type of the values; never objects.
    """

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]


def read_header(member: Member) -> NpyHeader:
    """Reads the header of a NumPy file and checks it against the size of the file.

    Raises:
        DatasetError: The file is damaged, truncated, holds objects or is in Fortran order.
    """
    try:
        with open_file(member.place) as file:
            version = npy.read_magic(file)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, is_fortran, dtype = read(file)
            header = NpyHeader(file.tell(), shape, dtype)
    except Exception as error:
        raise damaged(member.name, error) from error
    if is_fortran or dtype.hasobject:
        raise damaged(member.name, "it holds objects, or an array in Fortran order")
    expected = header.offset + math.prod(shape) * dtype.itemsize
    if member.size != expected:
        raise damaged(member.name, f"it has {member.size:,} bytes instead of {expected:,}")
    return header


def read_array(member: Member) -> NDArray[np.generic]:
    """Reads a whole NumPy file.

    Raises:
        DatasetError: See `read_header` and `Member.read`.
    """
    header = read_header(member)
    return np.frombuffer(member.read(), header.dtype, offset=header.offset).reshape(header.shape)
