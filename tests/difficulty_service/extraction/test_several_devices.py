"""Several devices of a machine share the shards of a dataset; here two processes of the CPU."""

import os
import signal
from pathlib import Path

import pytest
import torch

from difficulty_service.base import devices
from difficulty_service.base.errors import BackboneError, DeviceError, ImageError
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.engines import several_devices
from difficulty_service.extraction.engines.several_devices import DeviceProcess, DeviceProcesses
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.scoring.pipeline import Callbacks, ExtractedDataset, execute, make_plan
from difficulty_service.settings.machine import RunOptions
from difficulty_service.settings.run import Run
from tests.factories import write_image_folder
from tests.small_network import FRAGILE, GPU_FAILURE

CPU = torch.device("cpu")
SHARD_SIZE = 5


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Ten images of each of three classes, of which one cannot be read."""
    folder = tmp_path / "images"
    write_image_folder(folder, ("ant", "bee", "cat"), 10)
    (folder / "bee" / "bad.png").write_bytes(b"no image")
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[DeviceProcess]:
    """The processes that an extraction starts."""
    processes: list[DeviceProcess] = []
    start = DeviceProcesses.start

    def noting(self: DeviceProcesses) -> DeviceProcess:
        processes.append(start(self))
        return processes[-1]

    monkeypatch.setattr(DeviceProcesses, "start", noting)
    return processes


def extract(
    images: Path,
    out: Path,
    *,
    number: int = 2,
    backbone: str = "builtin",
    callbacks: Callbacks | None = None,
    **options: object,
) -> ExtractedDataset:
    """Extracts by so many processes; by this one where that is 0."""
    plan = Plan(
        str(images),
        out,
        backbone,
        dataset=DatasetOptions(shard_size=SHARD_SIZE),
        options=ExtractOptions(workers=2, **options),  # type: ignore[arg-type]
        devices=(CPU,) * number,
    )
    return execute(plan, callbacks or Callbacks())


def parts_of(extracted: ExtractedDataset) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in extracted.store.folder.glob("part-*")}


@pytest.mark.slow
def test_two_processes_write_what_one_writes(
    images: Path, tmp_path: Path, started: list[DeviceProcess]
) -> None:
    alone = extract(images, tmp_path / "alone", number=0)

    shared = extract(images, tmp_path / "shared")

    assert len(started) == 2
    assert len(parts_of(alone)) > 4
    assert parts_of(shared) == parts_of(alone)
    assert [bad.sample_id for bad in shared.bad_images] == ["bee/bad.png"]
    assert not any(process.child.is_usable for process in started)


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced(
    images: Path, tmp_path: Path, started: list[DeviceProcess]
) -> None:
    done: list[int] = []

    def kill_one(progress: object) -> None:
        if not done and any(process.asked for process in started):
            done.append(started[0].child.pid)
            os.kill(started[0].child.pid, signal.SIGKILL)
        assert progress

    shared = extract(images, tmp_path / "shared", callbacks=Callbacks(progress=kill_one))

    assert len(started) == 3
    assert parts_of(shared) == parts_of(extract(images, tmp_path / "alone", number=0))


def test_an_error_of_a_process_ends_the_run_and_both_processes(
    images: Path, tmp_path: Path, started: list[DeviceProcess]
) -> None:
    with pytest.raises(ImageError, match=r"bee/bad\.png"):
        extract(images, tmp_path / "shared", stop_on_error=True)

    assert not any(process.child.is_usable for process in started)


def test_a_gpu_that_fails_in_a_process_is_named(
    images: Path,
    tmp_path: Path,
    small_networks: None,  # noqa: ARG001 - known to the processes
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPU_FAILS", "1")

    with pytest.raises(DeviceError, match=f"^device 'cuda' failed: {GPU_FAILURE}$"):
        extract(images, tmp_path / "shared", backbone=FRAGILE)


def test_the_processes_share_the_cores(
    images: Path,
    tmp_path: Path,
    started: list[DeviceProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(several_devices, "num_workers", lambda: 7)
    cores: list[int | None] = []
    load = DeviceProcesses.load

    def noting(self: DeviceProcesses, actor: DeviceProcess) -> object:
        cores.append(self._task.options.workers)
        return load(self, actor)

    monkeypatch.setattr(DeviceProcesses, "load", noting)
    plan = Plan(str(images), tmp_path / "f", "builtin", devices=(CPU, CPU))
    plan = Plan(**vars(plan) | {"dataset": DatasetOptions(shard_size=SHARD_SIZE)})

    execute(plan)

    assert cores == [3, 3]
    assert len(started) == 2


def test_a_single_shard_runs_in_this_process(
    images: Path, tmp_path: Path, started: list[DeviceProcess]
) -> None:
    plan = Plan(str(images), tmp_path / "f", "builtin", devices=(CPU, CPU))

    extracted = execute(plan)

    assert len(parts_of(extracted)) == 1
    assert not started


@pytest.mark.parametrize(("number", "shares"), [(3, 3), (1, 0)])
def test_all_is_every_gpu_of_the_machine(
    number: int, shares: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)

    plan = make_plan(Run(machine=RunOptions(device="all", precision="fp32")))

    assert [str(device) for device in plan.devices] == [f"cuda:{index}" for index in range(shares)]
    assert str(plan.network.device) == "cuda:0"


def test_all_without_a_gpu_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "has_gpu", lambda: False)

    with pytest.raises(BackboneError, match=r"no NVIDIA GPU computes; use device=.?cpu"):
        make_plan(Run(machine=RunOptions(device="all")))


@pytest.mark.parametrize(
    ("names", "named"),
    [
        ("0,1,9", "0, 1, 9"),
        ("0 1 2", "0, 1, 2"),
        ("0, 1, 2", "0, 1, 2"),
        ("MIG-a,MIG-b,MIG-c", "MIG-a, MIG-b, MIG-c"),
    ],
)
def test_all_with_a_name_that_cuda_leaves_out_is_an_error(
    names: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    with pytest.raises(BackboneError, match=rf"names 3 GPUs \({named}\), and CUDA finds 2"):
        make_plan(Run(machine=RunOptions(device="all")))


def test_all_without_a_gpu_says_which_were_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,8")
    monkeypatch.setattr(devices, "has_gpu", lambda: False)

    with pytest.raises(BackboneError, match=r"no NVIDIA GPU of those .* \(7, 8\) computes; use"):
        make_plan(Run(machine=RunOptions(device="all")))


@pytest.mark.parametrize("names", [None, "", "0,1", "0,1,", "3,5,-1,7", "GPU-a,GPU-b"])
def test_all_is_what_is_named_where_cuda_finds_it(
    names: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if names is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    plan = make_plan(Run(machine=RunOptions(device="all", precision="fp32")))

    assert [str(device) for device in plan.devices] == ["cuda:0", "cuda:1"]
