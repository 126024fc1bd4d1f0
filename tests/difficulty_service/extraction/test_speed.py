"""`difficulty backbones --benchmark`: what is measured and printed; never how fast it is."""

import io
import re

import pytest
import torch
from PIL import Image

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.base.errors import BackboneError
from difficulty_service.cli import create_app
from difficulty_service.cli.backbones import network_to_measure
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.extraction.speed import Speed, measure_speed, sample_photos

SMALL = "timm:test_vit"


def test_speed_is_images_by_time_and_hours_follow_from_it() -> None:
    speed = Speed("any", 50, 2.0)

    assert speed.images_per_second == 25
    assert speed.hours(90_000) == 1


def test_at_least_one_batch_is_measured() -> None:
    speed = measure_speed(SMALL, BackboneOptions(random=True), seconds=0)

    assert speed.name == SMALL
    assert speed.num_images == 8
    assert speed.seconds > 0


def test_photographs_are_jpeg_of_500_by_400_pixels_that_differ() -> None:
    photos = sample_photos()

    opened = [Image.open(io.BytesIO(photo)) for photo in photos]
    assert {(image.format, image.size) for image in opened} == {("JPEG", (500, 400))}
    assert len(set(photos)) == len(photos)


@pytest.mark.parametrize("name", ["builtin", SMALL, "open_clip:test-clip/none"])
def test_random_weights_need_no_file_and_say_that_they_are_random(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.startswith("open_clip:"):
        vision = {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16}
        pretraining = {"interpolation": "bicubic", "mean": (0.5,) * 3, "std": (0.5,) * 3}
        configs = {"embed_dim": 8, "vision_cfg": vision}, {"hf_hub": "a/b/", **pretraining}
        monkeypatch.setattr(
            "difficulty_service.backbones.clip.find_configs", lambda *_arguments: configs
        )
    backbone = load_backbone(name, BackboneOptions(random=True))

    size = backbone.preprocessing.size
    assert backbone.weights_sha256 == "random"
    assert backbone.encode(torch.zeros(2, 3, size, size)).shape == (2, backbone.feature_dim)


def test_weights_that_are_here_are_used() -> None:
    assert not network_to_measure("builtin").random
    assert network_to_measure(SMALL).random
    with pytest.raises(BackboneError, match="unknown backbone 'nothing'"):
        network_to_measure("nothing")


def test_the_table_has_speed_hours_and_where_they_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("difficulty_service.extraction.speed.SECONDS", 0)
    monkeypatch.setenv("COLUMNS", "200")
    words = ["backbones", "--benchmark", "--only", "builtin", "--only", SMALL, "--images", "5000"]

    create_app()([*words, "--device", "cpu", "--precision", "fp32"])

    done = capsys.readouterr()
    assert "measuring builtin (1 of 2)" in done.err
    heading, *rows, machine = [line for line in done.out.splitlines() if line]
    assert heading.split() == ["name", "images/s", "hours", "for", "5,000", "weights"]
    assert [row.split()[0] for row in rows] == ["builtin", SMALL]
    assert [row.split()[-1] for row in rows] == ["pretrained", "random"]
    for row in rows:
        rate, hours = (float(cell.replace(",", "")) for cell in row.split()[1:3])
        assert hours == pytest.approx(5000 / rate / 3600, abs=0.01)
    assert re.fullmatch(r"cpu, float32, \d+ cores; JPEG .* 500 x 400 .* decoding included", machine)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("--images", "10"), "--images"),
        (("--only", "builtin"), "--only"),
        (("--device", "cpu"), "--device"),
        (("--precision", "fp32"), "--precision"),
    ],
)
def test_options_of_a_benchmark_need_one(arguments: tuple[str, ...], option: str) -> None:
    with pytest.raises(WrongCall, match=f"{option} would change nothing"):
        create_app()(["backbones", *arguments])
