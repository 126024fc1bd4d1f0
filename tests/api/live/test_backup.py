"""A backup that is made while a service works is a service again, as docs/operating.md says."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from difficulty_service.client import Client, Decision, JobCreate, JobDataset, Mark, MarkChange
from tests.api.live.running import StartService
from tests.page_commands import commands_below


def run(commands: str, folder: Path) -> None:
    """Runs the lines of a block of the page in a folder."""
    commands = commands.replace("python -c", f"{sys.executable} -c")
    subprocess.run(["/bin/sh", "-ec", commands], cwd=folder, check=True)  # noqa: S603 - our own


@pytest.mark.long
def test_jobs_keys_and_marks_are_there_again_and_what_ran_runs_again(
    start_service: StartService, start_for_all: StartService, photos: Path, tmp_path: Path
) -> None:
    def start(how: Callable[..., Any], data: Path) -> Any:  # noqa: ANN401 - see conftest.py
        url = f"sqlite:///{data / 'difficulty.sqlite'}"
        data.mkdir(exist_ok=True)
        return how(url, data_dir=data, lease=5)

    def request(**options: int) -> JobCreate:
        dataset = JobDataset(root="photos", path="train")
        return JobCreate(dataset=dataset, backbone="builtin", **options)

    service = start(start_service, tmp_path / "difficulty-data")
    secret = service.new_key("me")
    with Client(service.url, key=secret) as client:
        finished = client.wait(client.submit(request()).id)
        (first, *_) = client.samples(finished.id)
        keep = MarkChange(sample_id=first.sample_id, decision=Decision(mark=Mark.KEEP))
        client.mark(finished.id, [keep])
        uploaded = client.upload(
            shutil.make_archive(str(tmp_path / "train"), "zip", photos / "train")
        )
        scores = client.download(finished.id, tmp_path / "before.parquet").read_bytes()
        running = client.submit(request(augment_runs=30))
        next(event for event in client.events(running.id) if event.state == "running")

        run(commands_below("operating.md", "Backup")[0], tmp_path)

        client.cancel(running.id)
    place = tmp_path / "elsewhere"
    place.mkdir()
    shutil.move(tmp_path / "backup", place)
    run(commands_below("operating.md", "Restore")[0], place)
    restored = start(start_for_all, place / "difficulty-data")

    with Client(restored.url, key=secret) as client:
        assert client.download(finished.id, tmp_path / "after.parquet").read_bytes() == scores
        assert [mark.sample_id for mark in client.marks(finished.id)] == [first.sample_id]
        assert [upload.id for upload in client.uploads().uploads] == [uploaded.id]
        assert client.wait(running.id).state == "succeeded"
