"""Products of float32, in a process that lets torch round them to less."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from difficulty_service.backbones.backbone import BackboneOptions, Preprocessing, TextPreprocessing
from difficulty_service.backbones.frozen_network import freeze
from difficulty_service.backbones.text_encoder import TextEncoder
from difficulty_service.base.float32_products import full_float32
from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit_batches
from difficulty_service.gaussians.products import Workspace
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scorers.near_copies import pairs_by_products

BACKENDS = torch.backends
GROUPS = {"all": BACKENDS, "mkldnn": BACKENDS.mkldnn, "cudnn": BACKENDS.cudnn}
PRODUCTS = {
    "mkldnn.matmul": BACKENDS.mkldnn.matmul,
    "mkldnn.conv": BACKENDS.mkldnn.conv,
    "mkldnn.rnn": BACKENDS.mkldnn.rnn,
    "cuda.matmul": BACKENDS.cuda.matmul,
    "cudnn.conv": BACKENDS.cudnn.conv,
    "cudnn.rnn": BACKENDS.cudnn.rnn,
}
FULL = dict.fromkeys(PRODUCTS, "ieee")


def settings() -> dict[str, object]:
    """Every setting that a process can read, of which some exclude others."""
    read: dict[str, object] = {
        name: each.fp32_precision for name, each in {**GROUPS, **PRODUCTS}.items()
    }
    older: dict[str, Callable[[], object]] = {
        "matmul": torch.get_float32_matmul_precision,
        "cuda": lambda: BACKENDS.cuda.matmul.allow_tf32,
        "cudnn older": lambda: BACKENDS.cudnn.allow_tf32,
    }
    for name, get in older.items():
        try:
            read[name] = get()
        except RuntimeError:
            read[name] = "cannot be read"
    return read


def products() -> dict[str, object]:
    return {name: each.fp32_precision for name, each in PRODUCTS.items()}


def nothing() -> None:
    pass


def older_medium() -> None:
    torch.set_float32_matmul_precision("medium")


def older_high_without_convolutions() -> None:
    torch.set_float32_matmul_precision("high")
    BACKENDS.cudnn.allow_tf32 = False


def newer_for_all() -> None:
    BACKENDS.fp32_precision = "bf16"


def newer_for_one() -> None:
    BACKENDS.fp32_precision = "tf32"
    BACKENDS.mkldnn.fp32_precision = "bf16"
    BACKENDS.mkldnn.conv.fp32_precision = "ieee"
    BACKENDS.cuda.matmul.fp32_precision = "tf32"


USES = [nothing, older_medium, older_high_without_convolutions, newer_for_all, newer_for_one]


@pytest.fixture(autouse=True)
def own_settings() -> Iterator[None]:
    """Gives the process its settings back after a test that changes them."""
    products = torch.get_float32_matmul_precision()
    convolutions = BACKENDS.cudnn.allow_tf32
    yield
    for each in GROUPS.values():
        each.fp32_precision = "none"
    for each in (BACKENDS.mkldnn.conv, BACKENDS.mkldnn.rnn):
        each.fp32_precision = "none"
    torch.set_float32_matmul_precision(products)
    BACKENDS.cudnn.allow_tf32 = convolutions


@pytest.mark.parametrize("use", USES)
def test_products_are_of_float32_inside_and_the_settings_are_what_they_were_afterwards(
    use: Callable[[], None],
) -> None:
    use()
    before = settings()

    with full_float32():
        inside = products()

    assert inside == FULL
    assert settings() == before


@pytest.mark.parametrize("use", USES)
def test_what_is_set_for_all_counts_again_where_nothing_else_was_set(
    use: Callable[[], None],
) -> None:
    use()
    BACKENDS.fp32_precision = "tf32"
    expected = settings()
    BACKENDS.fp32_precision = "none"
    use()

    with full_float32():
        pass
    BACKENDS.fp32_precision = "tf32"

    assert settings() == expected


def test_the_older_settings_can_be_read_inside() -> None:
    older_medium()

    with full_float32():
        read = settings()

    assert (read["matmul"], read["cuda"], read["cudnn older"]) == ("highest", False, False)


def test_the_settings_are_what_they_were_after_an_error() -> None:
    older_medium()
    before = settings()

    with pytest.raises(ZeroDivisionError), full_float32():
        _ = 1 / 0

    assert settings() == before


def test_the_last_thread_that_leaves_gives_the_settings_back() -> None:
    older_medium()
    before = settings()
    entered, leave = threading.Event(), threading.Event()

    def compute() -> None:
        with full_float32():
            entered.set()
            leave.wait(60)

    other = threading.Thread(target=compute)
    with full_float32():
        other.start()
        assert entered.wait(60)
    while_the_other_computes = products()
    leave.set()
    other.join()

    assert while_the_other_computes == FULL
    assert settings() == before


SEEN: list[dict[str, object]] = []
"""The settings whenever something of a test was run."""


class Watching(nn.Module):
    """A network that notes the precision in which it, or a copy of it, is run."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        SEEN.append(products())
        result: Tensor = self.norm(images).mean((2, 3))
        return result


def test_networks_of_images_run_in_float32() -> None:
    older_medium()
    SEEN.clear()
    preprocessing = Preprocessing(8, 8, "bicubic", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

    backbone = freeze("watching", Watching(), preprocessing, None, BackboneOptions())
    tried = len(SEEN)
    backbone.encode(torch.zeros(1, 3, 8, 8))

    assert 1 < tried < len(SEEN)
    assert all(each == FULL for each in SEEN)
    assert torch.get_float32_matmul_precision() == "medium"


def test_networks_of_texts_run_in_float32() -> None:
    older_medium()
    SEEN.clear()
    preprocessing = TextPreprocessing(3, lambda _: torch.zeros(3), {})

    def network(values: Tensor) -> Tensor:
        SEEN.append(products())
        return values

    TextEncoder("watching", 3, preprocessing, "random", network).encode(torch.zeros(1, 3))

    assert SEEN == [FULL]


class WatchingBatches(TensorBatches):
    """Features whose reader notes the precision in which they are fitted."""

    def read(self, batch: slice, work: Workspace) -> tuple[Tensor, Iterable[Tensor]]:
        SEEN.append(products())
        return super().read(batch, work)


def test_gaussians_are_fitted_in_float32() -> None:
    older_medium()
    SEEN.clear()
    features = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    source = WatchingBatches(features, torch.arange(60) % 3)

    gaussians = fit_batches(source, features, 3, FitOptions())
    relative_mahalanobis(gaussians).rmd(features, source.labels)

    assert SEEN
    assert all(each == FULL for each in SEEN)
    assert torch.get_float32_matmul_precision() == "medium"


class WatchingProducts(TorchFunctionMode):
    """Notes the settings with which matrices are multiplied."""

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if getattr(function, "__name__", "") in {"matmul", "__matmul__"}:
            SEEN.append(products())
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_near_copies_are_compared_in_float32(precision: str) -> None:
    generator = torch.Generator().manual_seed(0)
    features = nn.functional.normalize(torch.randn(200, 256, generator=generator))
    copies = nn.functional.normalize(features + 0.01 * torch.randn(200, 256, generator=generator))
    cosines = (copies.double() * features.double()).sum(1)
    threshold = float(cosines.median())  # many cosines are close to it
    torch.set_float32_matmul_precision(precision)
    SEEN.clear()

    with WatchingProducts():
        blocks = list(pairs_by_products(features, copies, threshold))

    assert SEEN
    assert all(each == FULL for each in SEEN)
    assert torch.get_float32_matmul_precision() == precision
    rows, found, measured = map(np.concatenate, zip(*blocks, strict=True))
    assert {*rows[rows == found]} >= {*(cosines >= threshold).nonzero().flatten().tolist()}
    np.testing.assert_allclose(measured[rows == found], cosines[rows[rows == found]], atol=1e-6)


def test_features_have_the_same_bits_whatever_the_process_allows() -> None:
    """Shows it on processors that multiply in bfloat16; others round nothing."""
    weights = torch.randn(512, 256, generator=torch.Generator().manual_seed(0))
    values = torch.randn(64, 512, generator=torch.Generator().manual_seed(1))
    preprocessing = TextPreprocessing(512, lambda _: values[0], {})
    encoder = TextEncoder("product", 256, preprocessing, "random", lambda rows: rows @ weights)
    plain = encoder.encode(values)

    older_medium()

    torch.testing.assert_close(encoder.encode(values), plain, rtol=0, atol=0)
