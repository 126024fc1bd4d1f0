"""What a run leaves open, settled: the backbone, its precision, and the library that runs it.

A network with weights of eight bits computes in them on CPUs. Otherwise a precision and a library
are chosen by measurement: some samples of the dataset go through the network in both ways. Sixteen
bits are several times as fast with some networks and change the ranks of the scores with others;
ONNX Runtime is faster with some networks of convolutions, on CPUs. Both wait for a dataset that is
worth the comparison.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from difficulty_service.backbones import (
    DEFAULT_BACKBONE,
    Loader,
    load_backbone,
    usual_precision,
    warn_of_licence,
)
from difficulty_service.backbones.backbone import Backbone, halves_of
from difficulty_service.backbones.exported_graph import (
    GraphRecord,
    KeptGraph,
    read_graph,
    read_record,
    run_kept,
    settle_graph,
)
from difficulty_service.backbones.frozen_network import FrozenNetwork, runtime_of
from difficulty_service.backbones.text_encoders import BUILTIN_TEXT
from difficulty_service.base.errors import MissingPackage, StatisticsError
from difficulty_service.base.wording import count_of
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.extraction.batches import FORWARD, Preparation, make_group, prepare_batch
from difficulty_service.extraction.default_backbone import default_backbone
from difficulty_service.extraction.pixel_look import look_at_pixels
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.schedules import suitable_batch_size
from difficulty_service.extraction.shards import extract_shards
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.features.description import (
    LEAST_AGREEMENT,
    FeatureKind,
    PrecisionPilot,
    is_store,
    read_description,
)
from difficulty_service.gaussians.fitting import fit
from difficulty_service.images.pixels import Pixels
from difficulty_service.images.preparation import normalise
from difficulty_service.scorers.mahalanobis import relative_mahalanobis

LEAST_IMAGES = 2048
"""Number of images from which on a comparison takes less time than the faster way can save."""

LEAST_SPEEDUP = 1.2
"""How many times as fast 16 bits must be: less does not pay for another rounding."""

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
}


def do_nothing() -> None:
    """The callback that does nothing."""


def settle(
    plan: Plan,
    dataset: Dataset,
    fitted_on: FeatureKind | None = None,
    load: Loader = load_backbone,
    compared: Callable[[], None] = do_nothing,
) -> Plan:
    """The plan with a backbone and a precision, where it leaves them open.

    Args:
        fitted_on: Kind of the features that the Gaussians for the plan were fitted to.
        compared: Called after each batch of a comparison.

    Raises:
        BackboneError: The backbone encodes samples of another kind.
        DatasetError: An option does not apply to texts.
    """
    plan = settle_range(plan, dataset, fitted_on)
    warnings: Sequence[str] = ()
    name = plan.backbone or (None if fitted_on is None else fitted_on.backbone)
    if not name and dataset.modality == "text":
        name = BUILTIN_TEXT
    elif not name and {"weights", "features", "image_size"} & set(plan.network.given):
        name = DEFAULT_BACKBONE
    elif not name:
        chosen = default_backbone(dataset, plan.options.max_pixels, plan.network.downloads)
        name, warnings = chosen.name, chosen.warnings
        plan = replace(plan, image_sizes=chosen.sizes)
    plan = replace(plan, backbone=name, warnings=[*warnings, *warn_of_licence(name)])
    return settle_precision(plan, dataset, fitted_on, load, compared)


def settle_range(plan: Plan, dataset: Dataset, fitted_on: FeatureKind | None = None) -> Plan:
    """The plan with what is seen of images of more than eight bits a channel, many bands or pages.

    In this order: what a person chose, what features that an earlier run left show, those of the
    Gaussians that will score the features, for the range what a look at some images says.
    """
    if dataset.modality == "text":
        return plan
    asked = plan.options.pixels or Pixels()
    known, whose = fitted_on, "as for the features of the Gaussians"
    if plan.resume and is_store(plan.out):
        known, whose = read_description(plan.out), "as in the features of an earlier run"
    before = (None if known is None else Pixels.of(known.preprocessing)) or Pixels()
    chosen = Pixels(asked.range, asked.bands or before.bands, asked.page or before.page)
    notes: Sequence[str] = ()
    if chosen.range is None and before.range is not None:
        chosen = replace(chosen, range=before.range)
        notes = [f"{before.range.sentence}, {whose}"]
    look = look_at_pixels(dataset, plan.options.max_pixels, chosen)
    if chosen.range is None and look.range is not None:
        chosen = replace(chosen, range=look.range)
        notes = [f"{look.range.sentence}, by a look at {count_of(look.num_images, 'image')}"]
    options = replace(plan.options, pixels=None if chosen == Pixels() else chosen)
    return replace(plan, options=options, pixel_notes=[*notes, *look.notes])


def settle_precision(
    plan: Plan,
    dataset: Dataset,
    fitted_on: FeatureKind | None = None,
    load: Loader = load_backbone,
    compared: Callable[[], None] = do_nothing,
) -> Plan:
    """The plan with a precision, where it leaves it open; see `settle`.

    In this order: the precision of features that an earlier run left, of the Gaussians that will
    score the features, int8 on a CPU if the network has it, what a comparison on some images says
    where the device has 16 bits, float32.
    """
    plan.task(dataset)  # refuses samples and options that the backbone does not go with
    if not plan.open_precision:
        return plan
    usual = usual_precision(str(plan.backbone), plan.network.precision, plan.network.device)
    plan = replace(plan, network=replace(plan.network, precision=usual))
    if plan.resume and is_store(plan.out):
        return _follow(plan, read_description(plan.out), f"the features in {plan.out} are")
    if fitted_on is not None:
        return _follow(plan, fitted_on, "the features of the Gaussians are")
    return plan if usual == torch.int8 else _compared(plan, dataset, load, compared)


def _compared(plan: Plan, dataset: Dataset, load: Loader, compared: Callable[[], None]) -> Plan:
    """The plan with the precision that a comparison chooses, where one is worth its time.

    Of texts only on a GPU; those of the built-in encoder have no network.

    Several processes that divide a dataset, or the nodes of a cluster, need not have the same
    processor and must agree on a precision, so they compare none.
    """
    alone = plan.cluster is None and plan.subset.num_subsets == 1
    device = plan.network.device
    is_text = dataset.modality == "text"
    left_alone = is_text and (plan.backbone == BUILTIN_TEXT or device.type == "cpu")
    worth_it = alone and len(dataset.labels) >= LEAST_IMAGES and not left_alone
    halves = halves_of(device) if worth_it else ()
    if not halves:
        return plan
    pilot = compare_precisions(plan.task(dataset), load, halves, compared)
    if not pilot.num_images:
        reason = f"float32, as no {dataset.modality} that was compared could be read"
        return replace(plan, precision_reason=reason)
    return replace(
        plan,
        network=replace(plan.network, precision=best_precision(pilot)),
        precision_pilot=pilot,
        precision_reason=reason_of(pilot, dataset.modality),
    )


def _follow(plan: Plan, before: FeatureKind, which: str) -> Plan:
    """The plan with the precision of other features, and what that was chosen by."""
    precision = DTYPES.get(str(before.precision))
    if precision is None:  # features of another program
        return plan
    changes = precision != plan.network.precision
    return replace(
        plan,
        network=replace(plan.network, precision=precision),
        precision_pilot=before.precision_pilot,
        precision_reason=f"{before.precision}, as {which}" if changes else None,
    )


@dataclass(frozen=True)
class Runtime:
    """A backbone by the library that an extraction runs it with.

    Attributes:
        reason: The library and why it is that one; None where there was no choice.
        warnings: A sentence where the network could not be exported.
    """

    backbone: Backbone
    reason: str | None = None
    warnings: tuple[str, ...] = ()


def settle_runtime(task: ExtractionTask, backbone: Backbone, num_images: int) -> Runtime:
    """The backbone by ONNX Runtime where that is faster; a network of convolutions on a CPU only.

    A graph that an earlier run has kept has been tried already. Otherwise, where there are images
    enough, the network is exported, which takes some seconds once for each network, size and
    machine, and the first batch of the dataset goes through both.

    Args:
        num_images: Number of images that are new.
    """
    given = Runtime(backbone)
    if not isinstance(backbone, FrozenNetwork) or backbone.graph is None:
        return given
    if runtime_of(backbone) is not None:
        record = read_record(backbone.graph)
        return given if record is None else _explained(backbone, record)
    if num_images < LEAST_IMAGES:
        return given
    try:
        kept = read_graph(backbone.graph) or _make_graph(task, backbone, backbone.graph)
    except MissingPackage as error:
        return replace(given, reason=f"PyTorch: {error}")
    except (OSError, MemoryError) as error:
        return replace(given, reason=f"PyTorch, as its graph cannot be kept ({error})")
    return given if kept is None else _explained(run_kept(backbone, kept), kept.record)


def _make_graph(task: ExtractionTask, backbone: FrozenNetwork, path: Path) -> KeptGraph | None:
    images = first_images(task, backbone)
    return None if images is None else settle_graph(backbone, path, images)


def _explained(backbone: FrozenNetwork, record: GraphRecord) -> Runtime:
    if record.failure is not None:
        warning = (
            f"{backbone.name} runs by PyTorch, as exporting it for ONNX Runtime failed: "
            f"{record.failure}"
        )
        return Runtime(backbone, warnings=(warning,))
    times = f"{record.speedup:.1f} times as fast"
    if runtime_of(backbone) is None:
        return Runtime(backbone, f"PyTorch, as ONNX Runtime is {times} here")
    return Runtime(backbone, f"ONNX Runtime, which is {times} as PyTorch here")


def first_images(task: ExtractionTask, backbone: FrozenNetwork) -> Tensor | None:
    """The first batch of a dataset as the input of the network; None where no image can be read."""
    size = suitable_batch_size(torch.device("cpu"), backbone)
    samples = list(islice(task.dataset.read_shard(0), size))
    task = replace(task, options=task.options.plain(), known=None)
    batch = prepare_batch(make_group(0, samples, None), Preparation.of(task, backbone), None)
    if batch.values is None:
        return None
    return normalise(batch.values, backbone.preprocessing, torch.float32)


def best_precision(pilot: PrecisionPilot) -> torch.dtype:
    """The precision of 16 bits where it is faster and ranks as float32 does, else float32."""
    better = pilot.same_ranks and pilot.speedup >= LEAST_SPEEDUP
    return DTYPES[pilot.half] if better else torch.float32


def reason_of(pilot: PrecisionPilot, noun: str = "image") -> str:
    """Why that precision is the best one, in a sentence; samples are called by the noun."""
    if pilot.agreement is None or pilot.speedup < LEAST_SPEEDUP:
        return f"float32, as {pilot.half} is {pilot.speedup:.1f} times as fast here"
    sentence = (
        f"{pilot.half} is {pilot.speedup:.1f} times as fast here, and Spearman's correlation of "
        f"the scores of {count_of(pilot.num_images, noun)} is {pilot.agreement:.5f}"
    )
    if best_precision(pilot) != torch.float32:
        return f"{pilot.half}: {sentence}"
    return f"float32: {sentence}, where {LEAST_AGREEMENT} is asked"


NUM_BLOCKS, BLOCK_IMAGES = 8, 64
"""Consecutive images are read fast, and several blocks see several classes of a sorted dataset."""

MAX_GROUPS = 16
"""Number of groups that classes are joined to, so that each has enough images for a mean."""


@dataclass(frozen=True)
class Encoded:
    """Features of some images, and how fast the network was.

    Attributes:
        features: Shape (images, dim).
        labels: Class indices. Shape (images,).
        rate: Images per second of the network alone, reading and decoding left out; on a CPU per
            second of processor time.
    """

    features: Tensor
    labels: Tensor
    rate: float


def compare_precisions(
    task: ExtractionTask,
    load: Loader,
    halves: Sequence[torch.dtype],
    compared: Callable[[], None] = do_nothing,
) -> PrecisionPilot:
    """How float32 and the first of some precisions that is better do on some images, or the last.

    The first block warms a network up, and ends its comparison where it is no faster than float32.

    The dataset has at least 512 images; `compared` is called after each batch.
    """
    task = replace(task, dataset=spread_blocks(task.dataset), options=task.options.plain())
    full = _Way(task, torch.float32, load, compared)
    pilots = (_compare(full, _Way(task, half, load, compared)) for half in halves)
    for pilot in pilots:
        if best_precision(pilot) != torch.float32:
            break
    return pilot


class _Way:
    """The images in one precision; each part is encoded when it is first asked for."""

    def __init__(
        self,
        task: ExtractionTask,
        precision: torch.dtype,
        load: Loader,
        compared: Callable[[], None],
    ) -> None:
        self.precision = precision
        self._task = replace(task, network=replace(task.network, precision=precision))
        self._backbone = _load_fastest(self._task, load)
        self._compared = compared

    @cached_property
    def first(self) -> Encoded:
        """The first block, which warms up."""
        return _encode(self._task, self._backbone, self._compared, range(1))

    @cached_property
    def everything(self) -> Encoded:
        """All blocks, with the rate of those after the first."""
        rest = _encode(self._task, self._backbone, self._compared, range(1, NUM_BLOCKS))
        features = torch.cat([self.first.features, rest.features])
        return Encoded(features, torch.cat([self.first.labels, rest.labels]), rest.rate)


def _compare(full: _Way, half: _Way) -> PrecisionPilot:
    firsts = full.first, half.first
    if firsts[1].rate <= firsts[0].rate:
        return _pilot(*firsts, half.precision, None)
    both = full.everything, half.everything
    return _pilot(*both, half.precision, rank_agreement(*both))


def _load_fastest(task: ExtractionTask, load: Loader) -> Backbone:
    """The network by the library that the extraction would run it with."""
    backbone = load(task.backbone, task.network)
    return settle_runtime(task, backbone, LEAST_IMAGES).backbone


def _pilot(
    full: Encoded, half: Encoded, precision: torch.dtype, agreement: float | None
) -> PrecisionPilot:
    rates = {str(precision).removeprefix("torch."): round(half.rate, 1)}
    return PrecisionPilot(
        num_images=len(full.labels),
        float32=round(full.rate, 1),
        bfloat16=rates.get("bfloat16"),
        float16=rates.get("float16"),
        agreement=agreement,
    )


def spread_blocks(dataset: Dataset) -> Dataset:
    """Blocks of consecutive samples from all over a dataset, one in each shard."""
    starts = np.linspace(0, len(dataset.labels) - BLOCK_IMAGES, NUM_BLOCKS).astype(int).tolist()
    positions = [start + row for start in starts for row in range(BLOCK_IMAGES)]

    def open_images(rows: Sequence[int]) -> Iterator[ImageOpener]:
        return dataset.open_images([positions[row] for row in rows])

    return replace(
        dataset,
        sample_ids=[dataset.sample_ids[position] for position in positions],
        labels=dataset.labels[positions],
        shard_size=BLOCK_IMAGES,
        open_images=open_images,
    )


def rank_agreement(full: Encoded, half: Encoded) -> float:
    """Smallest Spearman correlation of RMD in float32 with RMD by features of 16 bits.

    Either the features that are scored, or those that the Gaussians are fitted to, or both are of
    16 bits, so that features of one precision may be scored by Gaussians of the other. 0 where no
    Gaussians can be fitted, or all images get the same score.
    """
    # Imported here, because SciPy takes time that other extractions need not spend.
    from scipy.stats import spearmanr

    groups = torch.unique(full.labels, return_inverse=True)[1] % MAX_GROUPS
    try:
        by_full, by_half = (
            relative_mahalanobis(fit(each.features, groups, MAX_GROUPS)) for each in (full, half)
        )
        reference = by_full.rmd(full.features, groups)
        others = [
            by_half.rmd(half.features, groups),
            by_half.rmd(full.features, groups),
            by_full.rmd(half.features, groups),
        ]
    except StatisticsError:
        return 0.0
    scored = reference.isfinite()
    if reference[scored].unique().numel() < MAX_GROUPS:
        return 0.0
    found = [float(spearmanr(reference[scored], other[scored]).statistic) for other in others]
    return min(found) if np.isfinite(found).all() else 0.0


def _encode(
    task: ExtractionTask, backbone: Backbone, compared: Callable[[], None], shards: range
) -> Encoded:
    # On a CPU that of the processor, or the choice would hang on what other programs do meanwhile.
    on_cpu = task.network.device.type == "cpu"
    clock = StageClock(time.thread_time if on_cpu else time.perf_counter)
    extracted = extract_shards(task, backbone, shards, lambda *_: compared(), clock=clock)
    tables = [each.table for _, each in extracted]
    labels = torch.cat([table.labels for table in tables])
    (stage,) = (stage for stage in clock.stages() if stage.name == FORWARD)
    seconds = max(stage.busy / stage.threads, 1e-9)
    return Encoded(torch.cat([table.features for table in tables]), labels, len(labels) / seconds)
