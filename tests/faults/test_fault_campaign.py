"""Under every fault each job ends once, with the scores it would have had without.

DIFFICULTY_KILLS is the number of kills on each database, 500 in `make campaign` and otherwise four,
of each kind at least one. Kills, pauses and outages come in rounds; at the end of each round every
job must be as if there were none. With DIFFICULTY_NEW_INTERPRETERS, server, workers and processes
of jobs begin with nothing, as for users, and not by a fork of a process that has loaded them.
DIFFICULTY_CAMPAIGN_TABLE is the file that gets the counts after each round.
"""

import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext, ForkServerContext
from pathlib import Path

import httpx2
import numpy as np
import pytest
from pydantic import SecretStr

from api.settings import Settings
from api.storage.database import connect, migrate
from tests.factories import write_image_folder
from tests.faults.campaign_table import Row, record
from tests.faults.service import NewInterpreters, Service
from tests.faults.strikes import KILLS_PER_ROUND, LEASE, WAITING, Target, planned_faults
from tests.faults.submitted_jobs import POLL_SECONDS, SubmittedJobs
from tests.ports import unused_port

NUM_KILLS = int(os.environ.get("DIFFICULTY_KILLS", "4"))
MAX_SECONDS = max(900, 15 * NUM_KILLS)  # on one database; jobs are stuck far sooner
NEW_INTERPRETERS = "DIFFICULTY_NEW_INTERPRETERS" in os.environ
TABLE = os.environ.get("DIFFICULTY_CAMPAIGN_TABLE")

DATASETS = tuple(f"dataset-{number}" for number in range(4))
CLASSES = ("bird", "cat")
EACH = 12  # images of a class: shards enough to lose some and keep some

WORKERS = 4
ATTEMPTS = 100  # what is killed by chance must not run out of them
ENDING_SECONDS = 10.0  # that the job of a killed worker has to notice


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small datasets."""
    folder = tmp_path_factory.mktemp("root")
    generator = np.random.default_rng(11)
    for dataset in DATASETS:
        write_image_folder(folder / dataset, CLASSES, EACH, size=(8, 8), seed=generator)
    return folder


@pytest.fixture
def settings(root: Path, disk: Path, database: tuple[str, object]) -> Settings:
    return Settings(
        roots={"root": str(root)},
        data_dir=disk,
        database_url=SecretStr(database[0]),
        port=unused_port(),
        device="cpu",
        default_backbone="builtin",
        lease=LEASE,
        heartbeat=0.3,
        poll=0.1,
        retry_delay=0.05,
        max_attempts=ATTEMPTS,
        max_queued_jobs=1000,
        rate_limit="1000000/minute",
        log_level="error",
    )


@pytest.fixture
def service(settings: Settings, forkserver: ForkServerContext, tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "notes").mkdir()
    context: BaseContext = NewInterpreters() if NEW_INTERPRETERS else forkserver
    service = Service(settings, context, tmp_path / "notes")
    yield service
    service.close()


@pytest.fixture
def submitted(settings: Settings) -> Iterator[SubmittedJobs]:
    engine = connect(settings.resolved_database_url.get_secret_value())
    migrate(engine)
    with httpx2.Client(base_url=f"http://127.0.0.1:{settings.port}", timeout=1) as client:
        yield SubmittedJobs(client, engine, settings, DATASETS)
    engine.dispose()


@pytest.mark.long
@pytest.mark.timeout(MAX_SECONDS)
def test_every_job_ends_once_with_the_scores_of_an_undisturbed_run(
    service: Service,
    submitted: SubmittedJobs,
    settings: Settings,
    database: tuple[str, Callable[[], None] | None],
) -> None:
    chance = random.Random(40)  # noqa: S311 - moments, not secrets
    service.add_workers(WORKERS)
    submitted.keep_waiting(len(DATASETS))
    submitted.wait()
    expected = submitted.scores()
    tally = submitted.settle(expected)

    target = Target(service, submitted, settings.data_dir, database[1], chance)
    faults: Counter[str] = Counter()
    for first in range(0, NUM_KILLS, KILLS_PER_ROUND):
        kills = min(KILLS_PER_ROUND, NUM_KILLS - first)
        for fault in planned_faults(target, kills):
            submitted.keep_waiting(WAITING)
            fault(target)
            faults[fault.__name__] += 1
        target.settle()
        tally.add(submitted.settle(expected))
        logging.getLogger(__name__).info("%d kills: %s", first + kills, tally)
        if TABLE is not None:
            kind = "SQLite" if database[1] is None else "PostgreSQL"
            record(Path(TABLE), Row(kind, "new" if NEW_INTERPRETERS else "forked", faults, tally))
        assert tally.faults == {}
        assert unexpected(service) == []
    assert tally.overtaken > 0


def unexpected(service: Service) -> list[str]:
    """Processes that are not as they should be, and stay so."""
    end = time.monotonic() + ENDING_SECONDS
    while (found := service.unexpected()) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    return found
