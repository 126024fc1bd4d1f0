"""Images of concurrent requests share batches."""

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from api.online.encoder import Batcher


class Recorder:
    """A backbone that doubles its input, records the sizes of its batches and can be blocked."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.go_on = threading.Event()
        self.began = threading.Event()
        self.go_on.set()

    def __call__(self, views: Tensor) -> Tensor:
        self.sizes.append(len(views))
        self.began.set()
        assert self.go_on.wait(30)
        if (views < 0).any():
            raise ValueError("negative")
        return views.float() * 2


@pytest.fixture
def network() -> Recorder:
    return Recorder()


@pytest.fixture
def batcher(network: Recorder) -> Iterator[Batcher]:
    batcher = Batcher(network, batch_size=4)
    yield batcher
    network.go_on.set()
    batcher.close()


def test_each_submission_gets_its_own_features_in_order(batcher: Batcher) -> None:
    futures = [batcher.submit(torch.tensor([[2.0 * n], [2.0 * n + 1]])) for n in range(5)]

    assert [future.result(30).tolist() for future in futures] == [
        [[4.0 * n], [4.0 * n + 2]] for n in range(5)
    ]


def test_images_that_arrive_while_the_network_is_busy_share_its_next_pass(
    batcher: Batcher, network: Recorder
) -> None:
    network.go_on.clear()
    first = batcher.submit(torch.zeros(1, 1))
    assert network.began.wait(30)
    later = [batcher.submit(torch.ones(1, 1)) for _ in range(3)]

    network.go_on.set()
    for future in [first, *later]:
        future.result(30)

    assert network.sizes == [1, 3]


def test_no_pass_is_larger_than_the_batch_size(batcher: Batcher, network: Recorder) -> None:
    network.go_on.clear()
    futures = [batcher.submit(torch.zeros(3, 1)) for _ in range(2)]
    futures += [batcher.submit(torch.zeros(1, 1)) for _ in range(5)]
    network.go_on.set()

    for future in futures:
        future.result(30)

    assert sum(network.sizes) == 11
    assert max(network.sizes) <= 4


def test_an_error_of_the_backbone_reaches_only_the_callers_of_its_batch(batcher: Batcher) -> None:
    bad = batcher.submit(torch.tensor([[-1.0]]))
    with pytest.raises(ValueError, match="negative"):
        bad.result(30)

    good = batcher.submit(torch.tensor([[3.0]]))

    assert good.result(30).tolist() == [[6.0]]


def test_closing_encodes_what_is_queued_already(network: Recorder) -> None:
    batcher = Batcher(network, batch_size=2)
    network.go_on.clear()
    futures = [batcher.submit(torch.ones(1, 1)) for _ in range(5)]
    network.go_on.set()

    batcher.close()

    assert all(future.done() for future in futures)
