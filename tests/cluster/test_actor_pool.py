"""Assignment and retries of shards, with scripted actors that only live and die."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from difficulty_service.base.cluster import ActorPlan, ClusterOptions, plan_actors
from difficulty_service.base.errors import BackboneError, DeviceError, EngineError
from difficulty_service.cli.wrong_call import as_option
from difficulty_service.extraction.engines.actor_pool import (
    SHARDS_PER_ACTOR,
    ActorDied,
    ActorPool,
)
from difficulty_service.extraction.engines.shard_extractor import Loaded, name_libraries
from difficulty_service.extraction.extracted_shard import ExtractedShard
from difficulty_service.features.errors_file import BadImage
from difficulty_service.features.shard import ShardTable
from difficulty_service.settings.option_types import parse_actors

CPU, GPU = torch.device("cpu"), torch.device("cuda")
NOTHING = ShardTable([], torch.empty(0), torch.empty(0), torch.empty(0, 1))
SAME = {"weights": "w"}


@dataclass
class Scripted:
    """Actors on nodes in turn; some shards kill some of them.

    Attributes:
        nodes: Nodes that the actors start on, in turn.
        deadly: Number of actors that each of some shards still kills.
        environments: Answers of the actors of a node to `load`, by node.
        extractions: Node and shard of every extraction, in order.
        most_assigned: Largest number of shards that an actor had at a time.
    """

    nodes: Sequence[str] = ("a",)
    deadly: dict[int, int] = field(default_factory=dict)
    environments: dict[str, Any] = field(default_factory=dict)
    extractions: list[tuple[str, int]] = field(default_factory=list)
    most_assigned: int = 0
    _started: int = 0
    _answers: dict[str, Any] = field(default_factory=dict)
    _queue: deque[str] = field(default_factory=deque)

    def start(self) -> str:
        node = self.nodes[self._started % len(self.nodes)]
        self._started += 1
        return f"{node}{self._started}"

    def _reference(self, kind: str, actor: str, answer: object) -> str:
        reference = f"{kind} {actor} {len(self._answers)}"
        self._answers[reference] = answer
        self._queue.append(reference)
        return reference

    def place(self, actor: str) -> str:
        return self._reference("place", actor, (actor[0], f"host-{actor[0]}"))

    def load(self, actor: str) -> str:
        return self._reference("load", actor, self.environments.get(actor[0], Loaded(SAME)))

    def extract(self, actor: str, shard: int) -> str:
        self.extractions.append((actor[0], shard))
        waiting = sum(reference.startswith(f"extract {actor} ") for reference in self._queue)
        self.most_assigned = max(self.most_assigned, waiting + 1)
        return self._reference("extract", actor, shard)

    def ready(self, references: Sequence[str], timeout: float) -> Sequence[str]:  # noqa: ARG002
        chosen = next(reference for reference in self._queue if reference in references)
        self._queue.remove(chosen)
        return [chosen]

    def answer(self, reference: str) -> Any:  # noqa: ANN401 - of several kinds
        answer = self._answers[reference]
        if isinstance(answer, Exception):
            raise answer
        if not reference.startswith("extract"):
            return answer
        if self.deadly.get(answer, 0):
            self.deadly[answer] -= 1
            raise ActorDied("killed")
        return ExtractedShard(NOTHING, [BadImage("x", "damaged")] if answer == 0 else [], [])

    def counts(self) -> Mapping[int, tuple[int, int]]:
        return {}

    def free_cpus(self) -> float:
        return 0

    def end(self, actor: str) -> None:
        """Nothing is left to end."""


def run(actors: Scripted, shards: int = 6, number: int = 2) -> tuple[list[int], list[Any]]:
    """The shards in the order of their results, and the calls of the progress callback."""
    reports: list[Any] = []
    pool = ActorPool(actors, ActorPlan(1, number, 1, 0), dict.fromkeys(range(shards), 10), SAME)
    results = pool.results(lambda done, bad: reports.append((done, bad)))
    return [shard for shard, _ in results], reports


def test_every_shard_comes_back_once_and_progress_adds_up() -> None:
    shards, reports = run(Scripted())

    assert sorted(shards) == list(range(6))
    assert [sum(column) for column in zip(*reports, strict=True)] == [60, 1]


def test_a_run_can_be_ended_before_any_actor_has_found_room() -> None:
    class Cancelled(Exception):
        pass

    def cancel(_done: int, _bad: int) -> None:
        raise Cancelled

    actors = Scripted()
    pool = ActorPool(actors, ActorPlan(1, 2, 1, 0), {0: 10}, SAME)

    with pytest.raises(Cancelled):
        next(pool.results(cancel))

    assert actors.extractions == []


def test_no_actor_holds_more_shards_than_it_reads_ahead_into() -> None:
    actors = Scripted()

    run(actors, shards=20)

    assert actors.most_assigned == SHARDS_PER_ACTOR


def test_shards_of_an_actor_that_died_come_back_once_as_well() -> None:
    actors = Scripted(deadly={2: 1, 3: 2})

    shards, _ = run(actors)

    assert sorted(shards) == list(range(6))


def test_a_shard_is_tried_again_on_another_node() -> None:
    actors = Scripted(nodes=("a", "b"), deadly={0: 1})

    run(actors)

    assert [node for node, shard in actors.extractions if shard == 0] == ["a", "b"]


def test_on_the_only_node_a_shard_is_tried_there_again() -> None:
    actors = Scripted(nodes=("a",), deadly={0: 1})

    shards, _ = run(actors)

    assert sorted(shards) == list(range(6))


def test_a_shard_that_kills_every_actor_ends_the_run_and_is_named() -> None:
    with pytest.raises(EngineError, match="3 actors died on shard 1, the last one on host-a"):
        run(Scripted(deadly={1: 9}), number=1)


def test_actors_that_die_while_they_load_end_the_run() -> None:
    with pytest.raises(EngineError, match="3 actors died before they had loaded the backbone"):
        run(Scripted(environments={"a": ActorDied("out of memory")}))


def test_a_backbone_that_cannot_be_loaded_is_reported_with_the_host() -> None:
    with pytest.raises(EngineError, match="cannot start on host-a: no weights"):
        run(Scripted(environments={"a": BackboneError("no weights")}))


def test_a_device_that_fails_while_the_backbone_is_loaded_is_the_error_of_the_run() -> None:
    with pytest.raises(DeviceError, match=r"^device 'cuda:1' failed$"):
        run(Scripted(environments={"a": DeviceError("device 'cuda:1' failed")}))


def test_the_libraries_that_ran_the_backbone_are_named() -> None:
    actors = Scripted(nodes=("a", "b"), environments={"b": Loaded(SAME, "onnxruntime")})
    pool = ActorPool(actors, ActorPlan(2, 2, 1, 0), dict.fromkeys(range(6), 10), SAME)
    for _ in pool.results(lambda *_: None):
        pass

    assert name_libraries(pool.libraries) == "PyTorch and onnxruntime"
    assert name_libraries({None}) is None


def test_a_node_with_other_weights_is_refused() -> None:
    with pytest.raises(EngineError, match=r'host-b .*weights: "v" on host-b, "w" on the driver'):
        run(Scripted(nodes=("a", "b"), environments={"b": Loaded({"weights": "v"})}))


@pytest.mark.parametrize(
    ("nodes", "device", "options", "workers", "expected"),
    [
        ([{"CPU": 4}, {"CPU": 2}], CPU, ClusterOptions(), None, ActorPlan(1, 6, 1, 0)),
        ([{"CPU": 4}, {"CPU": 2}], CPU, ClusterOptions(), 4, ActorPlan(1, 1, 4, 0)),
        ([{"CPU": 4}], CPU, ClusterOptions(None, 2, 3), None, ActorPlan(2, 3, 1, 0)),
        ([{"CPU": 2}], CPU, ClusterOptions(None, 2, 64), None, ActorPlan(2, 64, 1, 0)),
        ([{"CPU": 16, "GPU": 2}, {"CPU": 8}], GPU, ClusterOptions(), None, ActorPlan(1, 2, 8, 1)),
        ([{"CPU": 64, "GPU": 1}], GPU, ClusterOptions(), None, ActorPlan(1, 1, 16, 1)),
    ],
)
def test_actors_are_as_many_as_fit_on_nodes_whole(
    nodes: list[dict[str, float]],
    device: torch.device,
    options: ClusterOptions,
    workers: int | None,
    expected: ActorPlan,
) -> None:
    assert plan_actors(nodes, device, options, 100, workers) == expected


def test_there_are_no_more_actors_than_shards() -> None:
    assert plan_actors([{"CPU": 8}], CPU, ClusterOptions(), num_shards=3).max_actors == 3


@pytest.mark.parametrize(
    ("nodes", "device", "options", "workers", "remedy"),
    [
        ([{"CPU": 2}, {"CPU": 2}], CPU, ClusterOptions(None, 5, 9), None, "use --ray-actors 4"),
        ([{"CPU": 2}, {"CPU": 2}], CPU, ClusterOptions(), 3, "use a smaller --workers"),
        ([{"CPU": 2}], GPU, ClusterOptions(), None, "use a smaller --workers"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(
    nodes: list[dict[str, float]],
    device: torch.device,
    options: ClusterOptions,
    workers: int | None,
    remedy: str,
) -> None:
    with pytest.raises(EngineError, match="do not fit on the cluster") as raised:
        plan_actors(nodes, device, options, 100, workers)

    assert remedy in raised.value.message(as_option)


@pytest.mark.parametrize(("text", "expected"), [("3", (3, 3)), ("2:8", (2, 8))])
def test_a_number_of_actors_is_one_or_a_range(text: str, expected: tuple[int, int]) -> None:
    assert parse_actors(text) == expected


@pytest.mark.parametrize("text", ["0", "8:2", "2:", ":3", "-1", "many", "1:2:3"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="2:8"):
        parse_actors(text)
