"""Arrow IPC files with a checksum, mapped into memory; other programs read them like any other."""

from pathlib import Path

import pyarrow as pa

from difficulty_service.files.checksum import DamagedFile, empty_line, fill_in, verify_path

CHECKSUM_KEY = b"checksum"
"""Key of the checksum in the metadata of the footer.

A program that writes the table again keeps the metadata of the schema, but not that of the footer.
"""

END_BYTES = 10
"""An Arrow file ends with the length of its footer, 4 bytes, and the magic number."""

UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)
"""Errors that `map_arrow` raises for damaged files."""


def write_arrow(path: Path, batch: pa.RecordBatch, without: str | None = None) -> None:
    """Writes a record batch without compression, and a checksum.

    Args:
        path: File to write.
        batch: Columns, and the metadata of their schema.
        without: Column of fixed-size lists of numbers that has checksums of its own, so that the
            checksum leaves the numbers out; None for no column.
    """
    with pa.ipc.new_file(path, batch.schema, metadata={CHECKSUM_KEY: empty_line()}) as writer:
        writer.write_batch(batch)
    with pa.memory_map(str(path)) as source:
        data = source.read_buffer()
    end = data.size - END_BYTES
    begin = end - int.from_bytes(data[end : end + 4].to_pybytes(), "little")
    numbers = range(0)
    if without is not None and len(batch):
        written = pa.ipc.open_file(pa.BufferReader(data)).get_batch(0)
        buffer = written[without].flatten().buffers()[-1]
        numbers = range(buffer.address - data.address, buffer.address - data.address + buffer.size)
    fill_in(path, begin + data[begin:end].to_pybytes().index(empty_line()), numbers)


def map_arrow(path: Path) -> tuple[pa.RecordBatch, bool]:
    """Maps a file whose checksum matches, or that another program wrote without one.

    Returns:
        The rows of the file, on mapped memory, which must not be written to, as far as they are one
        batch without compression; and whether the file has a checksum.

    Raises:
        DamagedFile: The checksum is lost or does not match.
        UNREADABLE: The file is missing, or is not an Arrow IPC file.
    """
    checksum = verify_path(path)
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    if len(batches) != 1:
        empty = pa.RecordBatch.from_pylist([], schema=reader.schema)
        batches = [pa.concat_batches([empty, *batches])]
    if checksum is None:
        if CHECKSUM_KEY in (reader.metadata or {}):
            raise DamagedFile("its checksum is lost")
        batches[0].validate(full=True)
    return batches[0], checksum is not None
