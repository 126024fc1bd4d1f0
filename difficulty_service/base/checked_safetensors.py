"""Safetensors files with a checksum of all their bytes in their metadata."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from difficulty_service.base.checksums import DamagedFile, empty_line, filled_in, verify_path

HEADER_KEY = "checksum"

UNREADABLE = (SafetensorError, OSError, ValueError, MemoryError)
"""Errors that `read_tensors` raises for damaged files."""


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a file that is not yet in its place."""
    whole = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    # The save_file of safetensors makes files that only their owner can read.
    data = save(whole, metadata={**(metadata or {}), HEADER_KEY: empty_line().decode()})
    path.write_bytes(filled_in(data))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file, which may have no checksum."""
    checksum = verify_path(path)
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata() or {})
        if metadata.pop(HEADER_KEY, None) is not None and checksum is None:
            raise DamagedFile("its checksum is lost")
        return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
