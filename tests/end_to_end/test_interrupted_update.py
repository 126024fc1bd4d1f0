"""What was extracted outlives a key press, SIGTERM, an error and a kill, also during an update.

DIFFICULTY_EXTRACTION_KILLS is the number of kills, 20 in `make campaign`.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest
import torch
from pyarrow import feather

from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction import shards
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.features.description import read_description
from difficulty_service.features.store import FeatureStore, open_store
from difficulty_service.scoring.pipeline import Callbacks, ExtractProgress, execute
from tests.end_to_end.conftest import CLASSES

ForkCommand = Callable[..., ForkServerProcess]

KILLS = int(os.environ.get("DIFFICULTY_EXTRACTION_KILLS", "5"))
IMAGES_PER_CLASS = min(200, 20 * KILLS)  # too many for half of the kills to come too late
LONGEST_DELAY_SECONDS = 0.05
POLL_SECONDS = 0.001


@pytest.fixture
def plan_of(photos: Path, tmp_path: Path, builtin: tuple[str, ...]) -> Plan:
    weights = builtin[builtin.index("--weights") + 1]
    return Plan(
        location=str(photos),
        out=tmp_path / "store",
        backbone="builtin",
        dataset=DatasetOptions(limit=200, shard_size=200),
        network=BackboneOptions(weights),
        options=ExtractOptions(batch_size=16, workers=1),
    )


def interrupt_after(images: int, error: BaseException) -> Callable[[ExtractProgress], None]:
    def on_progress(progress: ExtractProgress) -> None:
        if progress.done >= images:
            raise error

    return on_progress


def assert_same_shards(one: Path, other: Path) -> None:
    names = sorted(path.name for path in other.glob("*.arrow"))
    assert sorted(path.name for path in one.glob("*.arrow")) == names
    assert names
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("the network is gone")])
def test_the_finished_batches_of_a_shard_are_kept(
    plan_of: Plan, tmp_path: Path, error: BaseException
) -> None:
    whole = execute(replace(plan_of, out=tmp_path / "whole"))

    with pytest.raises(type(error)):
        execute(plan_of, Callbacks(interrupt_after(80, error)))
    partial = feather.read_table(tmp_path / "store" / "partial-00000.arrow")
    with pytest.raises(FeatureStoreError, match="lacks 1 of 1 shards"):
        open_store(tmp_path / "store")
    resumed = execute(plan_of)

    assert len(partial) == 80
    assert resumed.reuse is not None
    assert resumed.reuse.num_new == 120
    assert_same_shards(resumed.store.folder, whole.store.folder)
    assert not (tmp_path / "store" / "previous").exists()


@pytest.mark.slow
def test_two_interruptions_lose_no_more_than_one(plan_of: Plan, tmp_path: Path) -> None:
    whole = execute(replace(plan_of, out=tmp_path / "whole"))

    for images in (48, 112):
        with pytest.raises(KeyboardInterrupt):
            execute(plan_of, Callbacks(interrupt_after(images, KeyboardInterrupt())))
    resumed = execute(plan_of)

    assert resumed.reuse is not None
    assert resumed.reuse.num_new == 200 - 112
    assert_same_shards(resumed.store.folder, whole.store.folder)


@pytest.mark.slow
def test_finished_batches_are_written_from_time_to_time_in_case_of_a_crash(
    plan_of: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "UNFINISHED_SECONDS", 0.0)
    sizes = []

    def look(_progress: ExtractProgress) -> None:
        files = plan_of.out.glob("partial-*")
        sizes.extend(feather.read_table(file).num_rows for file in files)

    execute(plan_of, Callbacks(look))

    assert sizes == list(range(16, 200, 16))
    assert not list(plan_of.out.glob("partial-*"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_the_images_of_a_shard_that_is_not_complete(
    fork_command: ForkCommand,
    photos: Path,
    tmp_path: Path,
    builtin: tuple[str, ...],
    number: int,
) -> None:
    store, errors = tmp_path / "store", tmp_path / "errors"
    sizes = ("--shard-size", 50, "--augment-runs", 20, "--batch-size", 16)
    words = ("extract", photos, *builtin, *sizes)

    process = fork_command(*words, "--out", store, errors=errors)
    while process.is_alive() and not (store / "part-00000.arrow").exists():
        time.sleep(POLL_SECONDS)
    time.sleep(0.5)  # for the first images of the next shard
    os.kill(process.pid, number)
    process.join()

    assert process.exitcode == 128 + number
    assert errors.read_text().splitlines()[-1].startswith("stopped; the same command resumes")
    (partial,) = store.glob("partial-*")
    assert 0 < feather.read_table(partial).num_rows < 50 * 20


@pytest.mark.long
def test_kills_during_an_update_lose_no_feature_and_leave_no_store_that_only_looks_complete(
    forkserver: ForkServerContext,
    plan_of: Plan,
    photos: Path,
    tmp_path: Path,
) -> None:
    changed = tmp_path / "photos"
    for name in CLASSES:
        (changed / name).mkdir(parents=True)
        for number in range(IMAGES_PER_CLASS):
            shutil.copy(photos / name / f"{number:03d}.png", changed / name)
    plan = replace(plan_of, location=str(changed), dataset=DatasetOptions(shard_size=2))
    before = mark_features(execute(plan).store)
    (changed / "bird" / "050.png").rename(changed / "cat" / "moved.png")
    expected = {name: values for name, values in before.items() if name != "bird/050.png"}
    expected["cat/moved.png"] = before["bird/050.png"]
    chance = random.Random(5)  # noqa: S311 - moments, not secrets

    num_incomplete = 0
    for _ in range(KILLS):
        process = forkserver.Process(target=execute, args=(plan,), daemon=True)
        process.start()
        wait_for_change(plan.out, process)
        time.sleep(chance.uniform(0, LONGEST_DELAY_SECONDS))
        process.kill()
        process.join()
        store = FeatureStore(plan.out, read_description(plan.out))
        num_incomplete += bool(store.missing_shards())
        assert store.missing_shards() or features_by_id(store) in (before, expected)
    last = execute(plan)

    assert num_incomplete > KILLS / 2
    assert features_by_id(last.store) == expected
    assert not (plan.out / "previous").exists()


def wait_for_change(store: Path, process: ForkServerProcess) -> None:
    """Waits until a shard is written or moved."""
    before = len(list(store.glob("part-*")))
    while process.is_alive() and len(list(store.glob("part-*"))) == before:
        time.sleep(POLL_SECONDS)


def mark_features(store: FeatureStore) -> dict[str, list[float]]:
    """Gives every image features that no network gives, so that an extracted one is noticed."""
    for shard in range(store.num_shards):
        file = store.shard_file(shard)
        table = feather.read_table(file)
        marked = torch.tensor(table["features"].to_pylist()) + 1000
        column = (
            table["features"].combine_chunks().from_arrays(marked.ravel().numpy(), marked.shape[1])
        )
        place = table.schema.get_field_index("features")
        feather.write_feather(table.set_column(place, table.field(place), column), file)
    return features_by_id(store)


def features_by_id(store: FeatureStore) -> dict[str, list[float]]:
    features: dict[str, list[float]] = {}
    for shard in range(store.num_shards):
        table = store.read_shard(shard)
        features |= dict(zip(table.sample_ids, table.features.tolist(), strict=True))
    return features
