"""Extraction that is killed resumes, and ends as if nothing had happened.

DIFFICULTY_EXTRACTION_KILLS is the number of kills, 20 in `make campaign`.
"""

import importlib.metadata
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.images.modes import Mode
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.pipeline import execute

Command = Callable[..., subprocess.CompletedProcess[str]]
ForkCommand = Callable[..., ForkServerProcess]

KILLS = int(os.environ.get("DIFFICULTY_EXTRACTION_KILLS", "5"))
SHARD_SIZE = 2
SHARDS = min(300, 20 * KILLS)  # more than are complete after all kills
IMAGES = SHARDS * SHARD_SIZE
SHARE_OF_KILLS_WHILE_WRITING = 0.5
POLL_SECONDS = 0.001
LONGEST_DELAY_SECONDS = 0.05


def plan_for(photos: Path, store: Path, builtin: tuple[str, ...]) -> Plan:
    weights = builtin[builtin.index("--weights") + 1]
    return Plan(
        location=str(photos),
        out=store,
        backbone="builtin",
        dataset=DatasetOptions(shard_size=SHARD_SIZE, limit=IMAGES),
        network=BackboneOptions(weights),
    )


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_store_made_with_another_pillow_is_not_resumed(
    few_photos: Path,
    tmp_path: Path,
    builtin: tuple[str, ...],
    mode: Mode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_for(few_photos, tmp_path / "features", builtin)
    plan = replace(plan, options=ExtractOptions(preprocess=mode))
    known = importlib.metadata.version
    earlier = {"pillow": "12.3.0"}
    with monkeypatch.context() as patched:
        patched.setattr("importlib.metadata.version", lambda name: earlier.get(name) or known(name))
        execute(plan)

    with pytest.raises(FeatureStoreError, match=r"pillow 12\.3\.0.* then.*use resume=False"):
        execute(plan)

    execute(replace(plan, resume=False))


def start(forkserver: ForkServerContext, plan: Plan) -> ForkServerProcess:
    process = forkserver.Process(target=execute, args=(plan,), daemon=True)
    process.start()
    return process


def shards_in(store: Path) -> set[str]:
    return {path.name for path in store.glob("part-*.arrow")}


def wait_for_shards(store: Path, wanted: int, is_running: Callable[[], bool]) -> None:
    while is_running() and len(shards_in(store)) < wanted:
        time.sleep(POLL_SECONDS)


def wait_for_write(store: Path, is_running: Callable[[], bool]) -> None:
    while is_running() and not any(store.glob(".*.part")):
        time.sleep(0)


@pytest.mark.slow
def test_kills_change_nothing(
    forkserver: ForkServerContext,
    difficulty: Command,
    photos: Path,
    tmp_path: Path,
    builtin: tuple[str, ...],
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    chance = random.Random(20)  # noqa: S311 - moments, not secrets
    uninterrupted = start(forkserver, plan_for(photos, whole, builtin))

    uninterrupted.join()
    counts = [0]
    for _ in range(KILLS):
        process = start(forkserver, plan_for(photos, killed, builtin))
        wait_for_shards(killed, counts[-1] + chance.randint(1, 3), process.is_alive)
        if chance.random() < SHARE_OF_KILLS_WHILE_WRITING:
            wait_for_write(killed, process.is_alive)
        else:
            time.sleep(chance.uniform(0, LONGEST_DELAY_SECONDS))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        counts.append(len(shards_in(killed)))
    last = start(forkserver, plan_for(photos, killed, builtin))
    last.join()

    assert uninterrupted.exitcode == last.exitcode == 0
    assert counts == sorted(set(counts))
    assert counts[-1] < SHARDS
    assert_same_folder(killed, whole)
    assert_same_scores(difficulty, killed, whole)


@pytest.mark.slow
def test_the_command_resumes_after_a_kill(
    forkserver: ForkServerContext,
    fork_command: ForkCommand,
    difficulty: Command,
    photos: Path,
    tmp_path: Path,
    builtin: tuple[str, ...],
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    sizes = ("--shard-size", SHARD_SIZE, "--limit", IMAGES)
    words = ("extract", photos, "--out", killed, *builtin, *sizes)
    uninterrupted = start(forkserver, plan_for(photos, whole, builtin))

    uninterrupted.join()
    process = fork_command(*words)
    wait_for_shards(killed, 5, process.is_alive)
    process.kill()
    process.join()
    before = {name: (killed / name).stat().st_mtime_ns for name in shards_in(killed)}
    done = difficulty(*words)

    assert process.exitcode == -signal.SIGKILL
    assert 5 <= len(before) < SHARDS
    assert f"{IMAGES} of {IMAGES} images have features" in done.stdout
    assert {name: (killed / name).stat().st_mtime_ns for name in before} == before
    assert_same_folder(killed, whole)


@pytest.mark.slow
def test_a_key_press_ends_with_130_and_how_to_go_on(
    fork_command: ForkCommand, photos: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    store, errors = tmp_path / "store", tmp_path / "errors"
    words = ("extract", photos, "--out", store, *builtin, "--shard-size", SHARD_SIZE)

    # Work of minutes, so that the key press comes in the middle however busy the machine is.
    process = fork_command(*words, "--augment-runs", 100, errors=errors)
    wait_for_shards(store, 2, process.is_alive)
    os.kill(process.pid, signal.SIGINT)
    process.join()

    assert process.exitcode == 130
    assert (
        errors.read_text().splitlines()[-1]
        == "stopped; the same command resumes where this one stopped"
    )
    assert shards_in(store)
    assert list(store.glob(".*.part")) == []


def test_what_a_kill_left_half_written_is_never_a_part_and_goes_at_the_next_run(
    difficulty: Command, few_photos: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    store = tmp_path / "store"
    words = ("extract", few_photos, "--out", store, *builtin, "--shard-size", 5)
    difficulty(*words)
    whole = (store / "part-00003.arrow").read_bytes()
    (store / "part-00003.arrow").unlink()
    for name in ("part-00003.arrow", "store.json", "errors.parquet"):
        (store / f".{name}.4242.part").write_bytes(whole[:100])

    incomplete = difficulty("score", store, "--out", tmp_path / "scores.parquet")
    done = difficulty(*words)

    assert "lacks 1 of 4 shards" in incomplete.stderr
    assert done.returncode == 0
    assert (store / "part-00003.arrow").read_bytes() == whole
    assert list(store.glob(".*.part")) == []


def assert_same_folder(one: Path, other: Path) -> None:
    """The same files with the same bytes, and nothing left over."""
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    assert len(shards_in(one)) == SHARDS
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def assert_same_scores(difficulty: Command, one: Path, other: Path) -> None:
    tables = []
    for store in (one, other):
        scores = store.with_suffix(".parquet")
        assert difficulty("score", store, "--out", scores).returncode == 0
        tables.append(read_scores(scores).table)
    for column in tables[0].column_names:
        assert tables[0][column].equals(tables[1][column]), column
