"""Backbones are tried on the same samples of a dataset, and judged by the labels given."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from difficulty_service.analyses.backbones.backbone_trial import (
    NO_CALLBACKS,
    BackboneTrial,
    TrialCallbacks,
    TriedBackbone,
    recommend,
    try_backbones,
)
from difficulty_service.analyses.backbones.command import as_duration
from difficulty_service.analyses.backbones.function import try_backbones as try_in_python
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.backbones.builtin import PREPROCESSING
from difficulty_service.backbones.frozen_network import freeze
from difficulty_service.base.errors import BackboneError, ConfigError, ImageError, StatisticsError
from difficulty_service.cli import create_app
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.scoring.pipeline import make_plan
from difficulty_service.settings.command_options import TrialOptions
from difficulty_service.settings.machine import RunOptions
from difficulty_service.settings.options import EncodingOptions
from difficulty_service.settings.run import Run
from tests.dataset_files import dataset_of
from tests.factories import write_image_folder

BLIND = "builtin-photos"
"""Name by which the loader below gives a network to which all images are noise."""

EACH = 30


class Noise(nn.Module):
    """Features that change with every level of a pixel."""

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, 3, side, side) to (samples, 20)."""
        return images.flatten(1)[:, :20].mul(1e4).sin()


def load(name: str, options: BackboneOptions) -> Backbone:
    """The built-in encoder, or one that sees nothing."""
    if name == BLIND:
        return freeze(name, Noise(), PREPROCESSING, None, options)
    return load_backbone(name, options)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise of three classes, each a little brighter than the one before; one file is damaged."""
    folder = write_image_folder(tmp_path_factory.mktemp("photos"), each=EACH, size=(32, 32))
    (folder / "cat" / "damaged.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return folder


def trial_of(
    folder: Path,
    names: Sequence[str],
    sample: int | None = None,
    callbacks: TrialCallbacks = NO_CALLBACKS,
    **encoding: object,
) -> BackboneTrial:
    """Tries backbones on a folder."""
    run = Run(
        encoding=EncodingOptions(**encoding), machine=RunOptions(device="cpu", precision="fp32")
    )
    dataset = dataset_of(folder)
    trial = TrialOptions(try_=names, sample=sample)
    return try_backbones(dataset, make_plan(run), trial, callbacks, load)


@pytest.fixture(scope="module")
def found(photos: Path) -> BackboneTrial:
    return trial_of(photos, [BLIND, "nonsense", "builtin"])


def test_the_backbone_that_tells_the_classes_apart_is_the_first(found: BackboneTrial) -> None:
    best, other = found.tried

    assert (best.name, other.name) == ("builtin", BLIND)
    assert found.nats_without_features < best.nats < 0
    assert (best.below_best, best.below_best_95) == (0, 0)
    assert other.below_best == pytest.approx(best.nats - other.nats)
    assert other.below_best_95 > 0


def test_speed_and_hours_are_those_of_the_whole_dataset(found: BackboneTrial) -> None:
    for each in found.tried:
        assert each.images_per_second > 0
        assert each.hours == pytest.approx(found.samples_of_dataset / each.images_per_second / 3600)


def test_a_backbone_that_is_none_is_listed_with_the_reason_and_the_others_go_on(
    found: BackboneTrial,
) -> None:
    (only,) = found.not_tried

    assert only.name == "nonsense"
    assert only.reason == "unknown backbone 'nonsense'"
    assert len(found.tried) == 2


def test_images_that_cannot_be_read_are_left_out(found: BackboneTrial) -> None:
    assert (found.samples, found.samples_of_dataset) == (3 * EACH, 3 * EACH + 1)
    assert found.classes == 3


@pytest.mark.slow
def test_a_sample_follows_from_its_seed(photos: Path) -> None:
    first, again, other = (
        trial_of(photos, ["builtin"], sample=40, seed=seed) for seed in (0, 0, 1)
    )

    assert first.samples <= 40
    assert first.tried[0].nats == again.tried[0].nats != other.tried[0].nats
    assert first.sentence.startswith("Only builtin was tried")


def test_every_batch_is_told_and_every_name(photos: Path) -> None:
    names: list[str] = []
    counts: list[tuple[int, int]] = []
    callbacks = TrialCallbacks(names.append, lambda each: counts.append((each.done, each.total)))

    trial_of(photos, ["builtin", "nonsense"], sample=40, callbacks=callbacks)

    assert names == ["builtin", "nonsense"]
    assert counts[0] == (0, 40)
    assert counts[-1] == (40, 40)


def test_without_any_backbone_the_reason_of_each_is_the_error(photos: Path) -> None:
    with pytest.raises(BackboneError, match=r"nonsense: unknown.*; builtin-text: .*text"):
        trial_of(photos, ["nonsense", "builtin-text"])
    with pytest.raises(ConfigError, match="no backbone is named"):
        trial_of(photos, [])


def test_where_labels_are_those_of_nothing_no_backbone_is_recommended(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(40):
        path = tmp_path / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (32, 32, 3), np.uint8)).save(path)

    found = trial_of(tmp_path, ["builtin", BLIND])

    assert found.recommended is None
    assert found.sentence.startswith("Take none of these: on 40 images not even ")


def test_a_dataset_with_nothing_to_compare_is_refused(tmp_path: Path) -> None:
    write_image_folder(tmp_path, ("cat",), each=3)

    with pytest.raises(StatisticsError, match="lacks two classes with two samples each"):
        trial_of(tmp_path, ["builtin"])


def test_a_bad_image_ends_a_trial_that_should_stop_at_one(photos: Path) -> None:
    with pytest.raises(ImageError, match=r"damaged\.png"):
        trial_of(photos, ["builtin"], on_error="stop")


def tried(name: str, below: float, half_width: float, speed: float) -> TriedBackbone:
    """A backbone with numbers that matter for the recommendation."""
    return TriedBackbone(
        name=name,
        nats=-1 - below,
        below_best=below,
        below_best_95=half_width,
        images_per_second=speed,
        hours=1.0,
    )


BEST = tried("best", 0, 0, 10)


@pytest.mark.parametrize(
    ("others", "name", "said"),
    [
        ([tried("near", 0.02, 0.03, 20)], "near", "it is 2.0 times as fast"),
        ([tried("far", 0.04, 0.03, 90)], "best", "all others are worse by more than chance"),
        (
            [tried("slow", 0.02, 0.03, 5)],
            "best",
            "slow, not worse by more than chance, would be slower",
        ),
        ([tried("a", 0.01, 0.02, 20), tried("b", 0.01, 0.02, 30)], "b", "3.0 times as fast"),
        ([tried("edge", 0.03, 0.03, 20)], "edge", "2.0 times as fast"),
    ],
)
def test_the_fastest_that_is_not_worse_by_more_than_the_interval_is_recommended(
    others: list[TriedBackbone], name: str, said: str
) -> None:
    recommended, sentence = recommend([BEST, *others], "100 images")

    assert recommended == name
    assert sentence.startswith(f"Take {name}: on 100 images ")
    assert said in sentence


def test_the_command_prints_a_table_and_a_recommendation(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    create_app()(["backbones", str(photos), "--try", "builtin,nonsense", "--device", "cpu"])

    done = capsys.readouterr()
    heading, row, of, failed, sentence = done.out.splitlines()
    assert heading.split("  ")[0] == "name"
    assert f"time for {3 * EACH + 1}" in heading
    assert row.split()[0] == "builtin"
    assert row.split()[2] == "best"
    assert of.startswith(f"{3 * EACH} images of {3 * EACH + 1} in 3 classes")
    assert failed == "not tried: nonsense: unknown backbone 'nonsense'"
    assert sentence.startswith("Only builtin was tried")
    assert "trying nonsense (2 of 2)" in done.err


@pytest.mark.parametrize(
    ("hours", "said"), [(0.01, "36 s"), (0.025, "2 min"), (1.4, "84 min"), (1.5, "1.5 h")]
)
def test_times_are_in_a_unit_that_suits_them(hours: float, said: str) -> None:
    assert as_duration(hours) == said


def test_json_is_the_whole_result_and_nothing_else(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--try", "builtin", "--try", "builtin", "--json", "--sample", "40", "--device", "cpu"]

    create_app()(["backbones", str(photos), *words])

    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == set(BackboneTrial.model_fields)
    assert [each["name"] for each in printed["tried"]] == ["builtin"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("photos",), "needs a DATASET and the names"),
        (("--try", "builtin"), "needs a DATASET and the names"),
        (("photos", "--try", ","), "needs a DATASET and the names"),
        (("photos", "--try", "builtin", "--limit", "5"), "--limit would change nothing with --try"),
        (("photos", "--try", "builtin", "--weights", "w"), "--weights would change nothing"),
        (("photos", "--try", "builtin", "--benchmark"), "--benchmark would change nothing"),
        (("photos", "--try", "builtin", "--only", "builtin"), "--only would change nothing"),
        (("--sample", "40"), "--sample would change nothing without --try"),
        (("--flip",), "--flip would change nothing without --try"),
        (("--json",), "--json would change nothing without --try"),
        (("--benchmark", "--sample", "40"), "--sample would change nothing with --benchmark"),
    ],
)
def test_options_that_do_not_go_together_are_a_wrong_call(
    words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(WrongCall, match=said):
        create_app()(["backbones", *words])


def test_python_tries_images_in_memory_and_warns_of_what_is_left_out() -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 120, (30, 32, 32, 3), np.uint8)
    images[::2] += 100
    labels: list[str | None] = ["bright", "dark"] * 15
    labels[0] = None

    with pytest.warns(UserWarning, match="1 of 30 images are left out"):
        found = try_in_python(
            images, labels, backbones="builtin", sample=20, progress=False, device="cpu"
        )

    assert (found.samples, found.samples_of_dataset) == (20, 29)
    assert torch.isfinite(torch.tensor(found.tried[0].nats))


def test_python_refuses_options_that_do_not_apply() -> None:
    with pytest.raises(ConfigError, match="limit does not apply to a trial; leave out limit"):
        try_in_python([], backbones=["builtin"], limit=3)
    with pytest.raises(ConfigError, match="sample"):
        try_in_python([], backbones=["builtin"], sample=3)
    with pytest.raises(TypeError, match="scorers"):
        try_in_python([], backbones=["builtin"], scorers=["rmd"])  # type: ignore[call-arg]
