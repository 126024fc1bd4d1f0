"""The BLAS kernels asked for follow the processor, and never the user's own choice."""

import os
from pathlib import Path

import pytest

from difficulty_service.processor import prefer_wide_kernels


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "")
    monkeypatch.delenv("OPENBLAS_CORETYPE")
    return tmp_path / "cpuinfo"


def test_amd_with_avx512_gets_wide_kernels(cpuinfo: Path) -> None:
    cpuinfo.write_text("vendor_id : AuthenticAMD\nflags : avx2 avx512bw\n")

    assert prefer_wide_kernels(cpuinfo) == "SkylakeX"
    assert os.environ["OPENBLAS_CORETYPE"] == "SkylakeX"


@pytest.mark.parametrize(
    "text", ["vendor_id : GenuineIntel\nflags : avx512bw\n", "vendor_id : AuthenticAMD\nflags :\n"]
)
def test_other_processors_are_left_alone(cpuinfo: Path, text: str) -> None:
    cpuinfo.write_text(text)

    assert prefer_wide_kernels(cpuinfo) is None
    assert "OPENBLAS_CORETYPE" not in os.environ


def test_a_machine_without_cpuinfo_is_left_alone(cpuinfo: Path) -> None:
    assert prefer_wide_kernels(cpuinfo) is None


def test_the_users_choice_stays(cpuinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo.write_text("vendor_id : AuthenticAMD\nflags : avx512bw\n")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")

    assert prefer_wide_kernels(cpuinfo) is None
    assert os.environ["OPENBLAS_CORETYPE"] == "Haswell"
