"""Where faiss searches, by a faiss that says it has GPUs and computes on the CPU."""

from types import ModuleType
from typing import Any

import faiss
import pytest
import torch
from torch import Tensor

from difficulty_service.scorers import faiss_package, kmeans, knn


class Resources:
    """As StandardGpuResources."""

    def setTempMemory(self, size: int) -> None:  # noqa: N802 - its name
        assert size < 1 << 30


class FaissWithGpus(ModuleType):
    """faiss, which notes the GPUs that it is to search on.

    Attributes:
        room: Whether there is memory on them.
    """

    StandardGpuResources = Resources

    def __init__(self, *, room: bool) -> None:
        super().__init__("faiss")
        self.room, self.searched_on = room, list[int]()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - faiss has no types
        return getattr(faiss, name)

    def get_num_gpus(self) -> int:
        return 2

    def index_cpu_to_gpu(self, _resources: Resources, gpu: int, index: Any) -> Any:  # noqa: ANN401 - faiss has no types
        self.searched_on.append(gpu)
        if not self.room:
            raise RuntimeError("Error in allocMemory at GpuResources.cpp:452:\nout of memory")
        return index


@pytest.fixture(params=[knn, kmeans], ids=["knn", "kmeans"])
def scorer(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


def score(
    scorer: ModuleType, with_gpus: ModuleType, monkeypatch: pytest.MonkeyPatch, device: str | None
) -> Tensor:
    """The scores of 300 samples, with a faiss of the test."""
    monkeypatch.setattr(scorer, "load_faiss", lambda: with_gpus)
    features = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    place = None if device is None else torch.device(device)
    if scorer is knn:
        return knn.knn_distance(features, features, 5, exclude_self=True, device=place)
    return kmeans.kmeans_distance(features, kmeans.fit_kmeans(features, 5, 0, place))


@pytest.mark.parametrize(
    ("device", "gpus"), [("cpu", []), ("cuda", [0]), ("cuda:1", [1]), (None, [0])]
)
def test_the_device_of_a_run_searches_and_no_other(
    scorer: ModuleType, device: str | None, gpus: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus = FaissWithGpus(room=True)

    score(scorer, with_gpus, monkeypatch, device)

    assert with_gpus.searched_on == gpus


def test_a_gpu_without_room_leaves_the_search_to_the_cpu(
    scorer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = score(scorer, faiss, monkeypatch, "cpu")

    with pytest.warns(UserWarning, match=r"^the CPU searches .* on GPU 0: out of memory$"):
        scores = score(scorer, FaissWithGpus(room=False), monkeypatch, "cuda")

    assert torch.equal(scores, expected)


def test_what_pytorch_keeps_unused_is_released_before_a_search(
    scorer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus = FaissWithGpus(room=True)
    released: list[int] = []
    monkeypatch.setattr(faiss_package.torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(
        faiss_package.torch.cuda, "empty_cache", lambda: released.append(len(with_gpus.searched_on))
    )

    score(scorer, with_gpus, monkeypatch, "cuda")

    assert released == [0]
