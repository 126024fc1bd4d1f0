"""Properties of every model, and models by name."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from trainer.config import ModelConfig
from trainer.models import MODELS, build_model, model_options
from trainer.samples import InputSpec

NUM_CLASSES = 10
IMAGE_MODELS = sorted(MODELS.keys() - {"probe", "text_cnn", "tree_lstm"})
IMAGES = InputSpec((3, 8, 8), torch.tensor([120.0, 110, 100]), torch.tensor([60.0, 50, 40]))
FEATURES = InputSpec((6,), torch.arange(6.0), torch.arange(1.0, 7))
TEXTS = InputSpec((12,), vocabulary=("", "?", "cat", "dog", "sat"))
TREES = InputSpec((), vocabulary=("padding", "unknown", "word"))


def build(name: str, spec: InputSpec = IMAGES, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return build_model(ModelConfig(name=name, options=options), spec, NUM_CLASSES).eval()


def some_images(samples: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (samples, 3, 8, 8), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("densenet121", 6_956_298),
        ("resnet18", 11_173_962),
        ("resnet34", 21_282_122),
        ("resnet50", 23_520_842),
        ("resnet110_basic", 1_727_962),
        ("resnet110_bottleneck", 45_864_522),
        ("small_resnet", 2_154_090),
        ("wide_resnet", 36_479_194),
        ("wide_resnet_post_activation", 36_481_434),
    ],
)
def test_a_model_has_the_number_of_parameters_of_its_paper(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = MODELS[name](InputSpec((3, 32, 32)), NUM_CLASSES)

    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_a_model_of_images_maps_bytes_to_logits(name: str) -> None:
    model = build(name)

    with torch.no_grad():
        logits = model(some_images())

    assert logits.shape == (3, NUM_CLASSES)
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", ["densenet121", "resnet18", "resnet110_basic", "small_resnet"])
def test_the_memory_format_of_images_changes_no_logits(name: str) -> None:
    model, images = build(name), some_images()
    with torch.no_grad():
        contiguous = model(images)

        model.to(memory_format=torch.channels_last)
        channels_last = model(images.to(memory_format=torch.channels_last))

    torch.testing.assert_close(channels_last, contiguous, rtol=1e-4, atol=1e-4)


def test_bytes_give_the_logits_of_floats_normalised_by_hand() -> None:
    model, images = build("small_resnet"), some_images()
    mean, std = torch.tensor([120.0, 110, 100]), torch.tensor([60.0, 50, 40])
    by_hand = (images.float() - mean.view(3, 1, 1)) / std.view(3, 1, 1)

    with torch.no_grad():
        logits = model(images)
        expected = model.get_submodule("network")(by_hand)

    torch.testing.assert_close(logits, expected)


def test_every_parameter_of_every_model_has_a_gradient() -> None:
    model = build("small_resnet").train()

    model(some_images()).square().sum().backward()

    without = [name for name, value in model.named_parameters() if value.grad is None]
    assert without == []


def test_the_seed_decides_the_initial_parameters() -> None:
    first, second = build("small_resnet"), build("small_resnet")

    for name, value in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], value, rtol=0, atol=0)


def test_convolutions_start_with_the_variance_of_he_and_batch_normalisation_with_none() -> None:
    model = build("resnet18")
    convolution = model.get_submodule("network.blocks.6.conv1")
    normalisation = model.get_submodule("network.blocks.6.bn1")

    std = convolution.weight.std().item()  # type: ignore[operator]

    assert std == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)
    assert normalisation.weight.unique().tolist() == [1.0]  # type: ignore[operator]
    assert normalisation.bias.unique().tolist() == [0.0]  # type: ignore[operator]


def test_the_statistics_are_saved_with_the_model_and_not_trained() -> None:
    model = build("small_resnet")

    parameters = dict(model.named_parameters())

    assert {"normalisation.mean", "normalisation.std"} <= model.state_dict().keys()
    assert "normalisation.mean" not in parameters


def test_a_model_without_statistics_does_not_normalise() -> None:
    model = build("probe", InputSpec((6,)))

    assert "normalisation.mean" not in model.state_dict()
    assert model(torch.zeros(2, 6)).shape == (2, NUM_CLASSES)


def test_options_are_the_keyword_parameters_of_the_builder() -> None:
    assert model_options("resnet18") == {}
    assert model_options("probe") == {"hidden": (), "dropout": 0.0}
    assert model_options("timm:resnet18") == {"pretrained": False, "checkpoint": None}


def test_a_misspelt_model_is_refused_with_the_nearest_and_all_names() -> None:
    with pytest.raises(ConfigError, match=r"'resnet81'; did you mean resnet18\? .*wide_resnet"):
        build("resnet81")


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'depth'; choose from dropout, hidden"):
        build("probe", FEATURES, depth=3)
    with pytest.raises(ConfigError, match=r"'resnet18' has no option 'width'; it takes none"):
        build("resnet18", width=3)


@pytest.mark.parametrize(
    ("name", "spec", "options"),
    [
        ("probe", FEATURES, {"hidden": "wide"}),
        ("probe", FEATURES, {"dropout": 0.5}),
        ("probe", FEATURES, {"hidden": [4], "dropout": 2.0}),
        ("probe", FEATURES, {"hidden": [-1]}),
        ("small_resnet", IMAGES, {"widths": 64}),
        ("small_resnet", IMAGES, {"widths": [16, 32], "blocks": [1]}),
        ("small_resnet", IMAGES, {"widths": [], "blocks": []}),
        ("resnet50", IMAGES, {"pooled_size": 0}),
        ("wide_resnet", IMAGES, {"depth": 28}),
        ("wide_resnet_post_activation", IMAGES, {"depth": 28}),
        ("text_cnn", TEXTS, {"embedding_dim": -3}),
        ("tree_lstm", TREES, {"hidden": -3}),
    ],
)
def test_an_invalid_value_of_an_option_is_a_config_error(
    name: str, spec: InputSpec, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=name):
        build(name, spec, **options)


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("resnet18", FEATURES, "'resnet18' takes images.*features.*choose probe"),
        ("timm:resnet18", TEXTS, "takes images.*text.*choose text_cnn"),
        ("probe", IMAGES, "'probe' takes features.*images.*densenet121 or"),
        ("text_cnn", FEATURES, "takes text.*features"),
        ("text_cnn", TREES, "takes text.*trees.*choose tree_lstm"),
    ],
)
def test_a_model_for_other_inputs_is_refused_with_those_that_fit(
    name: str, spec: InputSpec, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build(name, spec)
