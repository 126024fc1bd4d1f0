"""Batches that processes read and decode for a GPU, beside those of threads."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from api.jobs.failures import describe_failure
from difficulty_service.backbones.backbone import Preprocessing, TextPreprocessing
from difficulty_service.base.errors import DifficultyError
from difficulty_service.datasets.memory import ImagesInMemory, open_memory
from difficulty_service.datasets.sample import Dataset, DatasetOptions, Sample
from difficulty_service.extraction import decoding_processes, memory
from difficulty_service.extraction.batches import Batch, Group, Preparation, prepare_batch
from difficulty_service.extraction.decoding_processes import (
    KeptProcesses,
    can_be_sent,
    prepared_apart,
    processes_pay,
)
from difficulty_service.extraction.image_watch import ImageWatch
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.images import nvjpeg
from tests.dataset_files import dataset_of

HOW = Preparation(
    Preprocessing(size=32, resize=32, interpolation="bicubic", mean=(0.5,) * 3, std=(0.5,) * 3),
    ExtractOptions(),
    known=None,
    watch=None,
)
MANY = decoding_processes.LEAST_IMAGES


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-four JPEG files of two classes, and one that is none."""
    folder = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for number in range(24):
        file = folder / ("cat" if number % 2 else "dog") / f"{number:02d}.jpg"
        file.parent.mkdir(exist_ok=True)
        pixels = generator.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file)
    (folder / "cat" / "99.jpg").write_bytes(b"no image")
    return folder


def groups_of(dataset: Dataset, size: int = 5) -> list[Group]:
    samples = list(dataset.read_shard(0))
    return [Group(0, samples[start : start + size]) for start in range(0, len(samples), size)]


def here(groups: list[Group], how: Preparation = HOW) -> list[Batch]:
    return [prepare_batch(group, how, None) for group in groups]


def require_same(theirs: list[Batch], ours: list[Batch]) -> None:
    assert [replace(batch, values=None, appearance=None) for batch in theirs] == [
        replace(batch, values=None, appearance=None) for batch in ours
    ]
    for there, at_home in zip(theirs, ours, strict=True):
        assert there.values is not None
        assert at_home.values is not None
        assert torch.equal(there.values, at_home.values)
        assert there.values.stride() == at_home.values.stride()
        assert there.appearance is not None
        assert at_home.appearance is not None
        np.testing.assert_array_equal(there.appearance, at_home.appearance)


def test_processes_give_the_batches_of_threads_in_their_order(photos: Path) -> None:
    groups = groups_of(dataset_of(photos))

    batches = list(prepared_apart(iter(groups), HOW, 2, None))

    require_same(batches, here(groups))
    assert [bad.sample_id for batch in batches for bad in batch.bad] == ["cat/99.jpg"]


def test_the_seconds_of_all_processes_are_on_the_clock(photos: Path) -> None:
    clock = StageClock()

    list(prepared_apart(groups_of(dataset_of(photos)), HOW, 2, clock))

    busy = {stage.name: stage.busy for stage in clock.stages()}
    assert busy["read"] > 0
    assert busy["decode and resize"] > 0


def children() -> set[int]:
    """Process ids of the children that this process started; other tests may keep some of them."""
    return {child.pid or 0 for child in multiprocessing.active_children()}


def test_closing_ends_the_processes(photos: Path) -> None:
    groups = groups_of(dataset_of(photos), size=1)
    before = children()

    with closing(prepared_apart(groups, HOW, 2, None)) as batches:
        next(batches)
        started = [psutil.Process(pid) for pid in children() - before]

    assert len(started) == 2
    _, alive = psutil.wait_procs(started, timeout=20)
    assert not alive


@pytest.mark.slow
def test_kept_processes_prepare_one_shard_after_another(photos: Path) -> None:
    groups = groups_of(dataset_of(photos))
    kept, before, used = KeptProcesses(1000), children(), []

    for some in (groups[:3], groups[3:], groups):
        batches = list(prepared_apart(some, HOW, 2, None, kept=kept))
        used.append(children() - before)
        require_same(batches, here(some))
    with closing(prepared_apart(groups, HOW, 2, None, kept=kept)) as stopped:
        next(stopped)

    assert len(used[0]) == 2
    assert used == [used[0]] * 3
    assert kept.processes is None
    assert not children() - before


def test_a_process_that_was_killed_is_an_error_that_says_what_to_do(photos: Path) -> None:
    groups = groups_of(dataset_of(photos), size=1)
    before = children()

    def kill_one() -> Iterator[Group]:
        for number, group in enumerate(groups * 4):
            if number == 20:
                os.kill(min(children() - before), signal.SIGKILL)
            yield group

    with pytest.raises(DifficultyError, match=r"process that decodes images has ended") as caught:
        list(prepared_apart(kill_one(), HOW, 2, None))

    assert "workers" in str(caught.value)


@pytest.mark.slow
def test_a_watch_knows_what_processes_are_reading_and_an_error_names_it(
    photos: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "stuck.jpg"
    os.mkfifo(pipe)  # whoever opens it waits
    stuck = Sample("cat/stuck.jpg", 0, partial(open, pipe, "rb"))
    groups = groups_of(dataset_of(photos), size=1)
    watch, before = ImageWatch(), children()
    began = watch.last_step
    how = replace(HOW, watch=watch)
    reading: list[str] = []

    def kill_once_stuck() -> None:
        while not reading:
            time.sleep(0.05)
            reading.extend(image.sample_id for image in watch.under_way() if image.seconds > 1)
        for pid in children() - before:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_once_stuck)
    killer.start()
    with pytest.raises(DifficultyError, match=r"being read: cat/stuck\.jpg") as caught:
        list(prepared_apart([*groups, Group(0, [stuck])], how, 2, None))
    killer.join()

    assert reading == ["cat/stuck.jpg"]
    assert watch.last_step > began
    assert watch.under_way() == []
    assert describe_failure(caught.value, {}).retry


@pytest.mark.long
def test_a_script_without_a_main_guard_is_not_run_again(photos: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('once', flush=True)\n"
        "import pickle, sys\n"
        "from difficulty_service.extraction.decoding_processes import prepared_apart\n"
        "groups, how = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(len(list(prepared_apart(groups, how, 2, None))), 'batches', flush=True)\n"
    )
    given = tmp_path / "given"
    given.write_bytes(pickle.dumps((groups_of(dataset_of(photos)), HOW)))

    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, str(script), str(given)], capture_output=True, text=True, check=False
    )

    assert done.stdout == "once\n5 batches\n", done.stderr


def test_images_that_a_program_holds_are_left_to_threads(photos: Path) -> None:
    in_memory = ImagesInMemory(lambda _: b"", ["one"], np.zeros(1, np.int32), ("",))

    assert can_be_sent(groups_of(dataset_of(photos))[0])
    assert not can_be_sent(groups_of(open_memory(in_memory, "memory", DatasetOptions()))[0])


@pytest.mark.parametrize(
    ("how", "num_images", "workers", "pays"),
    [
        (HOW, MANY, 8, True),
        (HOW, MANY - 1, 8, False),
        (HOW, MANY, 2, False),
        (replace(HOW, watch=ImageWatch()), MANY, 8, True),
        (replace(HOW, preprocessing=TextPreprocessing(1, torch.tensor, {})), MANY, 8, False),
    ],
)
def test_processes_are_for_many_images_and_cores(
    how: Preparation, num_images: int, workers: int, *, pays: bool
) -> None:
    assert processes_pay(how, num_images, 4, workers) is pays


def test_jpegs_for_a_gpu_need_more_of_the_memory_that_processes_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = 8 * decoding_processes.BATCHES_AHEAD * 4 * nvjpeg.MOST_BYTES
    monkeypatch.setattr(memory.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr(memory, "memory_limit", lambda: None)

    assert processes_pay(HOW, MANY, 4, 8)
    assert not processes_pay(replace(HOW, options=ExtractOptions(preprocess="gpu")), MANY, 4, 8)


@pytest.mark.parametrize("missing", ["shared memory", "memory"])
def test_without_room_for_processes_threads_decode(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "memory":
        monkeypatch.setattr(memory, "memory_limit", lambda: 8 * memory.PROCESS_BYTES)
        batch_size = 4
    else:
        batch_size = 1 << 40  # no machine has room to share that many images

    assert not processes_pay(HOW, MANY, batch_size, 8)
