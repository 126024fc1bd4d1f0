"""Single images get the features that a job gives its samples."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook

from api.http.problems import Problem
from api.online.encoder import BackbonePool
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.base.threads import num_workers
from difficulty_service.extraction.plan import Plan
from difficulty_service.features.description import FeatureDescription
from difficulty_service.scoring.pipeline import ExtractedDataset, execute
from difficulty_service.settings.machine import RunOptions


@pytest.fixture
def networks() -> Iterator[BackbonePool]:
    networks = BackbonePool(RunOptions(device="cpu", max_pixels=1_000_000))
    yield networks
    networks.close()


def opener(content: bytes) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(content)


def test_images_get_the_features_that_extraction_gives_them(
    photos: Path, extracted: ExtractedDataset, networks: BackbonePool
) -> None:
    table = extracted.store.read_shard(0)
    openers = [opener((photos / sample_id).read_bytes()) for sample_id in table.sample_ids]

    features = networks.encode(openers, extracted.store.description)

    rows = torch.stack([each for each in features if isinstance(each, Tensor)])
    torch.testing.assert_close(rows, table.features, rtol=1e-4, atol=1e-4)


def test_images_are_mirrored_where_those_of_the_job_were(
    photos: Path, extracted: ExtractedDataset, networks: BackbonePool, tmp_path: Path
) -> None:
    network = BackboneOptions(flip=True)
    store = execute(Plan(str(photos), tmp_path, "builtin", network=network)).store
    table = store.read_shard(0)
    openers = [opener((photos / sample_id).read_bytes()) for sample_id in table.sample_ids]
    networks.encode(openers, extracted.store.description)  # the other kind is loaded already

    features = networks.encode(openers, store.description)

    rows = torch.stack([each for each in features if isinstance(each, Tensor)])
    torch.testing.assert_close(rows, table.features, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(rows, extracted.store.read_shard(0).features, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_precision_that_the_processor_emulates_is_left_to_those_that_have_it(
    precision: str, photos: Path, extracted: ExtractedDataset, networks: BackbonePool
) -> None:
    description = extracted.store.description
    openers = [opener((photos / "ant" / "0.png").read_bytes())]

    (row,) = networks.encode(openers, description.model_copy(update={"precision": precision}))
    (expected,) = networks.encode(openers, description)

    assert isinstance(row, Tensor)
    assert torch.equal(row, torch.as_tensor(expected))


def test_a_damaged_image_has_a_reason_and_the_others_their_features(
    photos: Path, extracted: ExtractedDataset, networks: BackbonePool
) -> None:
    good = (photos / "ant" / "0.png").read_bytes()

    found = networks.encode(
        [opener(good), opener(b"no image"), opener(good[:100]), opener(good)],
        extracted.store.description,
    )

    assert [isinstance(each, str) for each in found] == [False, True, True, False]


def test_a_job_made_with_other_weights_is_refused(
    photos: Path, extracted: ExtractedDataset, networks: BackbonePool
) -> None:
    known = extracted.store.description.to_json()
    description = FeatureDescription.of(known | {"weights_sha256": "0" * 64})
    content = (photos / "ant" / "0.png").read_bytes()

    with pytest.raises(Problem, match="conflict"):
        networks.encode([opener(content)], description)


def test_concurrent_requests_decode_no_more_images_at_once_than_there_are_cores(
    photos: Path, extracted: ExtractedDataset, networks: BackbonePool
) -> None:
    content = (photos / "ant" / "0.png").read_bytes()
    lock, under_way, seen = threading.Lock(), 0, []

    def slow() -> BinaryIO:
        nonlocal under_way
        with lock:
            under_way += 1
            seen.append(under_way)
        time.sleep(0.005)  # long enough for other threads to come, were there any
        with lock:
            under_way -= 1
        return io.BytesIO(content)

    def request(_number: int) -> int:
        return len(networks.encode([slow] * 6, extracted.store.description))

    with ThreadPoolExecutor(4 * num_workers()) as pool:
        answered = list(pool.map(request, range(4 * num_workers())))

    assert answered == [6] * (4 * num_workers())
    assert max(seen) <= num_workers()


def test_decoding_threads_keep_to_one_core_and_the_network_has_them_all(
    photos: Path, extracted: ExtractedDataset, several_threads: int
) -> None:
    content = (photos / "ant" / "0.png").read_bytes()
    decoding: list[int] = []
    encoding: list[int] = []
    networks = BackbonePool(RunOptions(device="cpu", max_pixels=1_000_000))

    def noting() -> BinaryIO:
        decoding.append(torch.get_num_threads())
        return io.BytesIO(content)

    with closing(networks), noting_threads_of_layers(encoding):
        networks.encode([noting] * 4, extracted.store.description)

    assert decoding == [1] * 4
    assert set(encoding) == {several_threads}


@pytest.fixture
def several_threads() -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


@contextmanager
def noting_threads_of_layers(noted: list[int]) -> Iterator[None]:
    handle = register_module_forward_hook(lambda *_: noted.append(torch.get_num_threads()))
    try:
        yield
    finally:
        handle.remove()
