"""Available devices and precisions, and errors for missing ones."""

from multiprocessing.context import ForkServerContext
from types import SimpleNamespace

import pytest
import torch

from difficulty_service.base.errors import TrainingError
from tests.two_processes import run_in_two
from trainer.config import TrainingConfig
from trainer.training.accelerator import (
    Precision,
    any_process,
    emulated_precision,
    make_accelerator,
    require_processes,
)


def test_one_process_may_use_one_precision_after_another() -> None:
    precisions = [
        make_accelerator("cpu", precision).mixed_precision for precision in ("bf16", "fp32", "auto")
    ]

    assert precisions == ["bf16", "no", "no"]


def test_the_cpu_is_used_when_it_is_named() -> None:
    accelerator = make_accelerator("cpu", "fp32")

    assert accelerator.device == torch.device("cpu")
    assert (accelerator.num_processes, accelerator.is_main_process) == (1, True)


@pytest.mark.parametrize(
    ("precision", "instructions", "is_slow"),
    [
        ("bf16", (), True),
        ("bf16", ("avx512_bf16",), False),
        ("bf16", ("amx_bf16",), False),
        ("fp32", (), False),
        ("auto", (), False),
    ],
)
def test_a_precision_that_the_processor_emulates_is_said(
    precision: Precision,
    instructions: tuple[str, ...],
    *,
    is_slow: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(instructions, True))

    said = emulated_precision(make_accelerator("cpu", precision))

    assert [sentence.partition(" on ")[0] for sentence in said] == (
        ["training.precision = 'bf16' is emulated"] if is_slow else []
    )


IN_TWO = """
import torch
from torch import distributed
from trainer.training.accelerator import LONGEST_WORK_OF_ONE, make_accelerator

make_accelerator("cpu", "fp32")
backend = distributed.group.WORLD._get_backend(torch.device("cpu"))
assert backend.options._timeout == LONGEST_WORK_OF_ONE, backend.options._timeout
"""


def test_processes_wait_for_hours_for_the_one_that_works_alone(
    forkserver: ForkServerContext,
) -> None:
    run_in_two(forkserver, IN_TWO)


@pytest.mark.parametrize("device", ["cuda:99", "nonsense"])
def test_a_missing_device_is_named(device: str) -> None:
    with pytest.raises(TrainingError, match=f"device '{device}' cannot be used here"):
        make_accelerator(device, "auto")


def test_half_precision_on_the_cpu_has_alternatives() -> None:
    with pytest.raises(TrainingError, match=r"'fp16' needs a CUDA device; set it to 'bf16'"):
        make_accelerator("cpu", "fp16")


def test_several_processes_do_not_share_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")

    with pytest.raises(TrainingError, match="device 'cuda:0' for 2 processes"):
        make_accelerator("cuda:0", "auto")


@pytest.mark.parametrize("launcher", ["WORLD_SIZE", "ACCELERATE_USE_CPU"])
def test_launched_processes_do_not_train_on_fewer_gpus_than_are_named(
    launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(launcher, {"WORLD_SIZE": "2"}.get(launcher, "false"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,7")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    with pytest.raises(TrainingError, match=r"names 2 GPUs \(0, 7\), and CUDA finds 1; name"):
        make_accelerator("auto", "fp32")


def test_a_gpu_that_is_named_and_missing_does_not_matter_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")

    assert make_accelerator("auto", "fp32").device == torch.device("cpu")


def test_one_process_returns_its_own_value() -> None:
    accelerator = make_accelerator("cpu", "fp32")

    assert any_process(True, accelerator)  # noqa: FBT003 - its one argument
    assert not any_process(False, accelerator)  # noqa: FBT003 - its one argument


@pytest.mark.parametrize("engine", ["FSDP", "DEEPSPEED", "MEGATRON_LM"])
def test_what_accelerate_would_do_to_the_model_by_itself_is_refused(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"ACCELERATE_USE_{engine}", "true")

    with pytest.raises(TrainingError, match=f"Accelerate is configured for {engine}.*fsdp"):
        make_accelerator("cpu", "fp32")


def settings_for_several(**keys: bool) -> TrainingConfig:
    return TrainingConfig.model_validate({"epochs": 1} | keys)


def test_a_process_alone_has_none_to_share_its_parameters_with() -> None:
    accelerator = make_accelerator("cpu", "fp32")

    require_processes(settings_for_several(sync_batchnorm=True), accelerator)
    with pytest.raises(TrainingError, match=r"needs other processes.*accelerate launch"):
        require_processes(settings_for_several(fsdp=True), accelerator)


@pytest.mark.parametrize(
    ("key", "precision", "reason"),
    [("fsdp", "fp16", "does not scale the gradients"), ("sync_batchnorm", "no", "needs GPUs")],
)
def test_several_processes_are_told_what_they_cannot_do(
    key: str, precision: str, reason: str
) -> None:
    two = SimpleNamespace(num_processes=2, mixed_precision=precision, device=torch.device("cpu"))

    with pytest.raises(TrainingError, match=reason):
        require_processes(settings_for_several(**{key: True}), two)
