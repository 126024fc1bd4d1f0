"""Devices that are there and cannot compute."""

import warnings
from collections.abc import Iterator

import pytest
import torch

from difficulty_service.backbones.backbone import choose_device
from difficulty_service.base import devices
from difficulty_service.base.errors import BackboneError

OLD_DRIVER = "CUDA initialization: The NVIDIA driver on your system is too old"


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    devices.has_gpu.cache_clear()
    yield
    devices.has_gpu.cache_clear()


def test_the_cpu_computes() -> None:
    assert devices.problem_of("cpu") is None
    assert choose_device("cpu") == torch.device("cpu")


def test_a_gpu_without_kernels_is_named_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_size: int, *, device: torch.device) -> torch.Tensor:
        raise RuntimeError(f"no kernel image is available for {device}\nand so on")

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.ones", fail)

    with pytest.warns(UserWarning, match="no GPU is used, .*: no kernel image is available"):
        chosen = choose_device("auto")

    assert chosen.type != "cuda"
    with pytest.raises(BackboneError, match=r"'cuda:1' cannot be used here: no kernel image .*1$"):
        choose_device("cuda:1")


@pytest.mark.parametrize(
    ("device", "error", "failure"),
    [
        ("auto", RuntimeError("no access\nand so on"), "device 'cuda' failed: no access"),
        ("cuda:1", RuntimeError("unspecified"), "device 'cuda:1' failed: unspecified"),
        ("cuda", torch.OutOfMemoryError("CUDA out of memory"), None),
    ],
)
def test_a_gpu_that_computes_no_longer_has_failed_unless_it_lacks_memory(
    device: str, error: Exception, failure: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_size: int, *, device: torch.device) -> torch.Tensor:
        assert device.type == "cuda"
        raise error

    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.ones", fail)

    found = devices.failure_of_gpu(device)

    assert (found and found.problem) == failure


def test_a_gpu_that_was_never_used_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: False)

    assert devices.failure_of_gpu("cuda") is None


def test_a_driver_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> bool:
        warnings.warn(f"{OLD_DRIVER} (Triggered internally at x.cpp:1.)", stacklevel=2)
        return False

    monkeypatch.setattr("torch.cuda.is_available", ask)

    with pytest.warns(UserWarning, match=f"no GPU is used, .*: {OLD_DRIVER}$"):
        assert choose_device("auto").type != "cuda"


def test_a_machine_without_a_gpu_needs_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    assert choose_device("auto").type != "cuda"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("", None),
        ("-1", None),
        ("NoDevFiles", None),  # as Slurm says that a job has no GPU
        ("0", None),
        ("0,1", "names 2 GPUs (0, 1), and CUDA finds 1"),
    ],
)
def test_gpus_are_left_out_where_more_are_named_than_found(
    names: str, problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(names.startswith("0")))

    left_out = devices.left_out_gpus()

    assert left_out == (problem and f"CUDA_VISIBLE_DEVICES {problem}")
