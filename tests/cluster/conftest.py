"""Three nodes of a Ray cluster on this machine, a dataset, and the scores of the local engine."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from tests.factories import write_image_folder

CLASSES = ("ant", "bee", "cat")
EACH = 100
SHARD_SIZE = 30
AUGMENT_RUNS = 3
NUM_SHARDS = len(CLASSES) * EACH // SHARD_SIZE
TIMEOUT = 400.0  # a busy machine may take minutes to start Ray's processes

ForkCommand = Callable[..., ForkServerProcess]


@dataclass
class SimulatedCluster:
    """Nodes that are processes of this machine, one logical core each; none is for the driver.

    Attributes:
        cluster: Ray's own simulation.
        address: What `--ray-address` takes.
        workers: The nodes but for the head.
    """

    cluster: Any
    address: str
    workers: list[Any] = field(default_factory=list)

    def raylet(self, node: Any) -> int:  # noqa: ANN401 - Ray's own
        """The process that is a node's heart."""
        return int(node.all_processes["raylet"][0].process.pid)

    def actors(self, node: Any, name: str = "ShardActor") -> list[int]:  # noqa: ANN401 - Ray's own
        """Processes of a node's actors, by default of those that extract features."""
        children = Path(f"/proc/{self.raylet(node)}/task").glob("*/children")
        found = [int(child) for file in children for child in file.read_text().split()]
        return [pid for pid in found if f"ray::{name}".encode() in command_line(pid)]

    def add_node(self) -> None:
        """One more node with a core."""
        self.workers.append(self.cluster.add_node(num_cpus=1, object_store_memory=100 << 20))

    def replace_dead(self, node: Any) -> None:  # noqa: ANN401 - Ray's own
        """Adds a node for one that was killed, once the cluster has found out that it is dead.

        Until then, a run would count its core and wait for it.
        """
        self.cluster.remove_node(node, allow_graceful=False)
        self.add_node()
        self.cluster.wait_for_nodes(TIMEOUT)


def command_line(process: int) -> bytes:
    """How a process calls itself; empty if it is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="session")
def cluster() -> Iterator[SimulatedCluster]:
    """A head without a core for actors and three nodes with one each."""
    pytest.importorskip("ray", reason="the package ray is not installed")
    # Sockets lie in it, and their paths may have a hundred characters at the most.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    os.environ["RAY_TMPDIR"] = folder
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # By default workers yield to all other processes, and stand still beside other tests.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's name
    # A node counts as dead after five checks that nobody answers, by default each three seconds.
    os.environ["RAY_health_check_period_ms"] = "500"  # noqa: SIM112
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20}
    simulated = Cluster(initialize_head=True, head_node_args=head)
    found = SimulatedCluster(simulated, simulated.address)
    for _ in range(3):
        found.add_node()
    yield found
    simulated.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per class; one image is damaged."""
    folder = tmp_path_factory.mktemp("photos")
    write_image_folder(folder, CLASSES, EACH, size=(60, 80), seed=3, name="{:03d}.jpg")
    (folder / CLASSES[1] / "007.jpg").write_bytes(b"\xff\xd8\xff nothing more")
    return folder


@dataclass(frozen=True)
class Run:
    """A `difficulty` command that runs as a process of its own.

    Attributes:
        process: Its process.
        scores: The score file that it will write; the features lie beside it.
        output: File of what it prints.
    """

    process: ForkServerProcess
    scores: Path
    output: Path

    @property
    def features(self) -> Path:
        """The folder of shards."""
        return self.scores.with_suffix(".features")

    def shards(self) -> list[Path]:
        """The shards that are written."""
        return sorted(self.features.glob("part-*.arrow"))

    def wait_for_shards(self, wanted: int) -> None:
        """Waits until so many shards are written."""
        until = time.monotonic() + TIMEOUT
        while len(self.shards()) < wanted:
            assert self.process.is_alive(), self.output.read_text()
            assert time.monotonic() < until, f"not even {wanted} shards"
            time.sleep(0.05)

    def finish(self) -> None:
        """Waits for the end, which must be a success."""
        self.process.join(TIMEOUT)
        assert self.process.exitcode == 0, self.output.read_text()


StartScore = Callable[..., Run]


@pytest.fixture(scope="session")
def start_score(fork_command: ForkCommand, photos: Path) -> StartScore:
    """Starts `difficulty score` on the photos."""

    def start(out: Path, *options: object) -> Run:
        words = ["score", photos, "--backbone", "builtin", "--shard-size", SHARD_SIZE]
        words += ["--augment-runs", AUGMENT_RUNS, "--shrinkage", "ledoit-wolf"]
        words += ["--device", "cpu", "--out", out, *options]
        output = out.with_suffix(".txt")
        return Run(fork_command(*words, output=output, errors=output), out, output)

    return start


@pytest.fixture(scope="session")
def local_run(start_score: StartScore, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What the local engine makes of the photos."""
    run = start_score(tmp_path_factory.mktemp("local") / "scores.parquet")
    run.finish()
    assert len(run.shards()) == NUM_SHARDS
    return run
