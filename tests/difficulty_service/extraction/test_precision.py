"""The precision that nobody asked for: measured once, followed ever after."""

import io
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

import difficulty_service as ds
from difficulty_service.backbones import backbone, load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.base.cluster import ClusterOptions
from difficulty_service.base.errors import BackboneError
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.extraction import policy
from difficulty_service.extraction.plan import Plan, ShardSubset
from difficulty_service.extraction.policy import (
    Encoded,
    best_precision,
    compare_precisions,
    rank_agreement,
    reason_of,
    settle_precision,
    spread_blocks,
)
from difficulty_service.extraction.stage_clock import StageClock, StageTime
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.features.description import FeatureKind, PrecisionPilot, read_description
from difficulty_service.interface.image_sources import open_images
from tests.average_pixel import AveragePixel

OPEN = Plan("photos", Path("no store"), "builtin", open_precision=True)
FASTER = PrecisionPilot(num_images=512, float32=20, bfloat16=60, agreement=0.9998)
OTHER_RANKS = PrecisionPilot(num_images=512, float32=20, bfloat16=60, agreement=0.98)


def pairs(number: int) -> list[tuple[np.ndarray, str]]:
    """Small images of four classes, which get brighter, in the order of the classes."""
    noise = np.random.default_rng(0).integers(0, 60, (number, 32, 32, 3), dtype=np.uint8)
    classes = [4 * row // number for row in range(number)]
    return [
        (image + np.uint8(60 * label), f"class{label}")
        for image, label in zip(noise, classes, strict=True)
    ]


def dataset_of(number: int) -> Dataset:
    return open_images(pairs(number), DatasetOptions())[0]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Callable[[PrecisionPilot], list[str]]:
    """Has the processor compute in bfloat16, with a result of the comparison that is given."""
    monkeypatch.setattr(backbone, "computes_in_bfloat16", lambda: True)
    monkeypatch.setattr(policy, "LEAST_IMAGES", 40)
    calls: list[str] = []

    def set_result(fields: dict[str, object]) -> list[str]:
        def compare(task: ExtractionTask, *_others: object) -> dict[str, object]:
            calls.append(task.backbone)
            return fields

        monkeypatch.setattr(policy, "compare_precisions", compare)
        return calls

    return set_result


@pytest.mark.parametrize(
    ("rates", "agreement", "expected", "reason"),
    [
        ((20, 60), 0.9995, torch.bfloat16, "bfloat16 is 3.0 times as fast here, and Spearman"),
        ((20, 60), 0.999, torch.bfloat16, "of the scores of 512 images is 0.99900"),
        ((20, 60), 0.9989, torch.float32, "is 0.99890, where 0.999 is asked"),
        ((20, 24), 0.9995, torch.bfloat16, "1.2 times as fast"),
        ((20, 23), 0.9995, torch.float32, "float32, as bfloat16 is 1.1 times as fast here"),
        ((20, 5), None, torch.float32, "float32, as bfloat16 is 0.2 times as fast here"),
        ((20, 60), 0.0, torch.float32, "is 0.00000, where 0.999 is asked"),
    ],
)
def test_bfloat16_is_taken_where_it_is_faster_and_ranks_alike(
    rates: tuple[float, float], agreement: float | None, expected: torch.dtype, reason: str
) -> None:
    pilot = PrecisionPilot(num_images=512, float32=rates[0], bfloat16=rates[1], agreement=agreement)

    assert best_precision(pilot) == expected
    assert reason in reason_of(pilot)


def naive_rmd(fitted: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """RMD of features, by the covariances of others with the same labels."""
    means = torch.stack([fitted[labels == label].mean(dim=0) for label in labels.unique()])

    def distance(differences: Tensor, centred: Tensor) -> Tensor:
        inverse = torch.linalg.inv(centred.T @ centred / len(centred))
        return ((differences @ inverse) * differences).sum(dim=1)

    own = distance(features - means[labels], fitted - means[labels])
    return own - distance(features - fitted.mean(dim=0), fitted - fitted.mean(dim=0))


def test_ranks_are_compared_with_features_and_gaussians_of_either_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % 3
    full = torch.randn(600, 5, generator=generator, dtype=torch.float64)
    half = full + 0.1 * torch.randn(600, 5, generator=generator, dtype=torch.float64)
    reference = naive_rmd(full, full, labels)
    crossed = [naive_rmd(*each, labels) for each in ((half, half), (half, full), (full, half))]
    expected = min(float(spearmanr(reference, each).statistic) for each in crossed)

    agreement = rank_agreement(Encoded(full, labels, 1.0), Encoded(half, labels, 1.0))

    assert agreement == pytest.approx(expected, abs=1e-9)
    assert 0.9 < agreement < 0.999


def test_features_that_overflow_do_not_agree() -> None:
    full = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 3

    agreement = rank_agreement(
        Encoded(full, labels, 1.0), Encoded(full.where(full < 2, torch.inf), labels, 1.0)
    )

    assert agreement == 0


def test_blocks_from_all_over_a_sorted_dataset_hold_every_class() -> None:
    dataset = dataset_of(2400)

    blocks = spread_blocks(dataset)

    samples = [sample for shard in range(blocks.num_shards) for sample in blocks.read_shard(shard)]
    ids = [int(sample.sample_id) for sample in samples]
    assert len(ids) == len(set(ids)) == 512
    assert (ids[0], ids[63], ids[64], ids[-1]) == (0, 63, 333, 2399)
    assert [sample.label for sample in samples] == dataset.labels[ids].tolist()
    assert set(blocks.labels.tolist()) == {0, 1, 2, 3}
    expected = next(dataset.open_images(range(333, 334)))().read()
    assert samples[64].open().read() == expected


@pytest.mark.parametrize("seconds", [(4.0, 1.0), (1.0, 1.0)])
def test_the_network_runs_in_both_precisions_and_slow_bfloat16_ends_it_early(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, float]
) -> None:
    monkeypatch.setattr(policy, "BLOCK_IMAGES", 8)
    runs: list[Tensor] = []

    class Clock(StageClock):
        """A clock by which the precisions, which take turns, take seconds that are given."""

        def stages(self) -> list[StageTime]:
            runs.append(torch.empty(0))
            busy = seconds[(len(runs) - 1) % 2]
            return [replace(stage, busy=busy, threads=1) for stage in super().stages()]

    monkeypatch.setattr(policy, "StageClock", Clock)
    task = OPEN.task(dataset_of(80))

    found = compare_precisions(task, load_backbone, [torch.bfloat16])

    if seconds[1] < seconds[0]:
        assert (found.num_images, found.float32, found.bfloat16) == (64, 14.0, 56.0)
        assert 0.5 < found.agreement < 1
    else:
        assert found == PrecisionPilot(num_images=8, float32=8, bfloat16=8, agreement=None)


class WaitsInBfloat16(AveragePixel):
    """A network that computes in float32, and in bfloat16 waits for a core that others have."""

    def encode(self, images: Tensor) -> Tensor:
        if images.dtype == torch.bfloat16:
            time.sleep(0.05)
        else:
            until = time.thread_time() + 0.02
            while time.thread_time() < until:
                pass
        return super().encode(images)


def test_what_other_programs_do_meanwhile_changes_no_choice_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "BLOCK_IMAGES", 8)

    found = compare_precisions(
        OPEN.task(dataset_of(80)), lambda *_: WaitsInBfloat16(), [torch.bfloat16]
    )

    assert found.num_images == 64
    assert found.speedup > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agreements", "chosen"),
    [((0.9999, 0.0), torch.float16), ((0.9, 0.9999), torch.bfloat16), ((0.9, 0.8), torch.float32)],
)
def test_the_first_of_several_precisions_that_ranks_alike_is_taken(
    monkeypatch: pytest.MonkeyPatch, agreements: tuple[float, float], chosen: torch.dtype
) -> None:
    monkeypatch.setattr(policy, "BLOCK_IMAGES", 8)
    found = iter(agreements)
    monkeypatch.setattr(policy, "rank_agreement", lambda _full, _half: next(found))
    # Of float32 and the first precision, their first blocks and the rest; then of the second one.
    seconds = iter([4.0, 1.0, 4.0, 1.0, 1.0, 1.0])

    class Clock(StageClock):
        """A clock by which parts take seconds that are given."""

        def stages(self) -> list[StageTime]:
            busy = next(seconds)
            return [replace(stage, busy=busy, threads=1) for stage in super().stages()]

    monkeypatch.setattr(policy, "StageClock", Clock)

    pilot = compare_precisions(
        OPEN.task(dataset_of(80)), load_backbone, [torch.float16, torch.bfloat16]
    )

    assert best_precision(pilot) == chosen
    assert (pilot.half == "float16") == (chosen == torch.float16)
    assert pilot.speedup == 4


def test_a_gpu_has_float16_and_a_recent_one_bfloat16_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capability = {"cuda:0": (7, 5), "cuda:1": (9, 0)}
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda each: capability[str(each)])

    assert backbone.halves_of(torch.device("cuda:0")) == (torch.float16,)
    assert backbone.halves_of(torch.device("cuda:1")) == (torch.float16, torch.bfloat16)
    assert backbone.choose_precision("auto", torch.device("cuda:1")) == torch.float32
    assert backbone.choose_precision("fp16", torch.device("cuda:1")) == torch.float16
    with pytest.raises(BackboneError, match="fp16 needs a GPU; use precision='bf16'"):
        backbone.choose_precision("fp16", torch.device("cpu"))


def test_only_a_lone_process_with_such_a_cpu_and_enough_images_compares(
    compared: Callable[[PrecisionPilot], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = compared(FASTER)
    dataset = dataset_of(48)

    given = [
        settle_precision(replace(OPEN, subset=ShardSubset(0, 2)), dataset),
        settle_precision(replace(OPEN, cluster=ClusterOptions()), dataset),
        settle_precision(OPEN, dataset_of(32)),
        settle_precision(replace(OPEN, open_precision=False), dataset),
    ]

    monkeypatch.setattr(backbone, "computes_in_bfloat16", lambda: False)
    given.append(settle_precision(OPEN, dataset))
    assert [each.network.precision for each in given] == [torch.float32] * 5
    assert [each.precision_reason for each in given] == [None] * 5
    assert calls == []


@pytest.mark.parametrize(
    ("name", "device", "chosen"),
    [
        ("transformers:x", "cuda", torch.float16),
        ("transformers:x", "cpu", torch.float32),
        ("builtin-text", "cuda", torch.float32),
    ],
)
def test_networks_of_texts_are_compared_on_a_gpu(
    name: str,
    device: str,
    chosen: torch.dtype,
    compared: Callable[[PrecisionPilot], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (9, 0))
    calls = compared(PrecisionPilot(num_images=512, float32=20, float16=60, agreement=0.9998))
    texts = [(f"text {row}", f"class{row % 2}") for row in range(48)]
    dataset = open_images(texts, DatasetOptions(text_column="text"))[0]
    plan = replace(OPEN, backbone=name, network=BackboneOptions(device=torch.device(device)))

    settled = settle_precision(plan, dataset)

    assert settled.network.precision == chosen
    assert calls == ([name] if chosen == torch.float16 else [])
    if calls:
        assert "scores of 512 texts is" in str(settled.precision_reason)


@pytest.mark.slow
def test_the_choice_is_recorded_and_a_resumed_run_keeps_it(
    tmp_path: Path, compared: Callable[[PrecisionPilot], list[str]]
) -> None:
    images, out = pairs(48), tmp_path / "scores.parquet"
    options = {"out": out, "progress": False, "resume": True, "device": "cpu"}
    calls = compared(FASTER)
    first = ds.score_dataset(images, **options, backbone="builtin")
    compared(OTHER_RANKS)

    again = ds.score_dataset(images[:-1], **options, backbone="builtin")

    assert calls == ["builtin"]
    for scores in (first, again):
        assert scores.provenance.precision == "bfloat16"
        assert scores.provenance.precision_pilot == FASTER
    assert read_description(tmp_path / "scores.features").precision == "bfloat16"


@pytest.mark.slow
def test_other_ranks_keep_float32(
    tmp_path: Path, compared: Callable[[PrecisionPilot], list[str]]
) -> None:
    compared(OTHER_RANKS)

    scores = ds.score_dataset(
        pairs(48), out=tmp_path / "scores.csv", progress=False, device="cpu", backbone="builtin"
    )

    assert scores.provenance.precision == "float32"
    assert scores.provenance.precision_pilot == OTHER_RANKS


def test_features_for_given_gaussians_take_their_precision(
    compared: Callable[[PrecisionPilot], list[str]],
) -> None:
    calls = compared(OTHER_RANKS)
    fitted_on = FeatureKind(precision="bfloat16", precision_pilot=FASTER)

    settled = settle_precision(OPEN, dataset_of(48), fitted_on)

    assert settled.network.precision == torch.bfloat16
    assert settled.precision_pilot == FASTER
    assert settled.precision_reason == "bfloat16, as the features of the Gaussians are"
    assert calls == []


def test_images_that_cannot_be_read_leave_nothing_to_compare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backbone, "computes_in_bfloat16", lambda: True)
    broken = replace(
        dataset_of(4096),
        open_images=lambda rows: iter([lambda: io.BytesIO(b"no image")] * len(rows)),
    )

    settled = settle_precision(OPEN, broken)

    assert settled.precision_reason == "float32, as no image that was compared could be read"
    assert settled.network.precision == torch.float32
    assert settled.precision_pilot is None
