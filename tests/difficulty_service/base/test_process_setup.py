"""BLAS kernels and heap settings fit the processor, and settings of the user are kept."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.process_setup import (
    enable_avx512_kernels,
    have_arrow_use_malloc,
    keep_freed_memory,
)


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "")
    monkeypatch.delenv("OPENBLAS_CORETYPE")
    return tmp_path / "cpuinfo"


def test_amd_processors_with_avx512_use_avx512_kernels(cpuinfo: Path) -> None:
    cpuinfo.write_text("vendor_id : AuthenticAMD\nflags : avx2 avx512bw\n")

    assert enable_avx512_kernels(cpuinfo) == "SkylakeX"
    assert os.environ["OPENBLAS_CORETYPE"] == "SkylakeX"


@pytest.mark.parametrize(
    "text", ["vendor_id : GenuineIntel\nflags : avx512bw\n", "vendor_id : AuthenticAMD\nflags :\n"]
)
def test_other_processors_keep_their_kernels(cpuinfo: Path, text: str) -> None:
    cpuinfo.write_text(text)

    assert enable_avx512_kernels(cpuinfo) is None
    assert "OPENBLAS_CORETYPE" not in os.environ


def test_without_cpuinfo_nothing_is_changed(cpuinfo: Path) -> None:
    assert enable_avx512_kernels(cpuinfo) is None


def test_a_kernel_set_by_the_user_is_kept(cpuinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo.write_text("vendor_id : AuthenticAMD\nflags : avx512bw\n")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")

    assert enable_avx512_kernels(cpuinfo) is None
    assert os.environ["OPENBLAS_CORETYPE"] == "Haswell"


LAYERS_OF_A_NETWORK = """
import resource
import torch
from difficulty_service.base.process_setup import keep_freed_memory

assert keep_freed_memory()
for batch in range(40):
    if batch == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    layers = [torch.ones(1 << 20, dtype=torch.float32) for _ in range(8)]
    del layers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults() -> int:
    """Page faults of thirty batches of eight layers of 4 MB, in a separate process."""
    environment = {name: value for name, value in os.environ.items() if "MALLOC_" not in name}
    command = [sys.executable, "-c", LAYERS_OF_A_NETWORK]
    return int(subprocess.check_output(command, env=environment, text=True))  # noqa: S603


@pytest.mark.slow
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back so soon"
)
def test_freed_memory_is_reused_by_the_next_batch() -> None:
    pages_written = 30 * 8 * (4 << 20) // 4096

    assert page_faults() < pages_written / 100


def test_heap_settings_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")

    assert not keep_freed_memory()


FREED_BY_A_THREAD = """
import threading
from pathlib import Path
import torch
from difficulty_service.base.process_setup import give_back_freed_memory, keep_freed_memory

def megabytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

keep_freed_memory()
before = megabytes()
thread = threading.Thread(target=lambda: [torch.ones(1 << 20) for _ in range(20)])
thread.start()
thread.join()
kept = megabytes() - before
give_back_freed_memory()
print(kept, megabytes() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory")
def test_memory_that_a_thread_freed_is_given_back() -> None:
    environment = {name: value for name, value in os.environ.items() if "MALLOC_" not in name}
    command = [sys.executable, "-c", FREED_BY_A_THREAD]

    output = subprocess.check_output(command, env=environment, text=True)  # noqa: S603

    kept, rest = map(float, output.split())
    assert kept > 60
    assert rest < kept / 2  # what allocating anything for the first time takes, too


def test_a_process_that_goes_on_for_long_reads_tables_into_memory_of_malloc(tmp_path: Path) -> None:
    pq.write_table(pa.table({"number": range(100_000)}), tmp_path / "numbers.parquet")
    before = pa.default_memory_pool()
    own, malloc = before.bytes_allocated(), pa.system_memory_pool().bytes_allocated()
    try:
        have_arrow_use_malloc()
        table = pq.read_table(tmp_path / "numbers.parquet")
        read = pa.system_memory_pool().bytes_allocated() - malloc
    finally:
        pa.set_memory_pool(before)

    assert read >= table.nbytes
    # What was read of the file may stay there for a moment, compressed.
    assert before.bytes_allocated() - own < table.nbytes
