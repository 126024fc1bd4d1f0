"""timm's networks, built offline."""

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from trainer.config import ModelConfig
from trainer.models import build_model
from trainer.models.timm_models import timm_model
from trainer.samples import InputSpec

SPEC = InputSpec((3, 32, 32))
NUM_CLASSES = 4


def pretrained_parameters(num_classes: int = 1000) -> dict[str, Tensor]:
    torch.manual_seed(7)
    return dict(timm.create_model("resnet18", num_classes=num_classes).state_dict())


def test_a_network_has_one_logit_per_class() -> None:
    model = build_model(ModelConfig(name="timm:resnet18"), SPEC, NUM_CLASSES).eval()

    assert model(torch.randn(2, 3, 32, 32)).shape == (2, NUM_CLASSES)


@pytest.mark.parametrize("filename", ["model.safetensors", "model.pth"])
def test_a_checkpoint_fills_all_but_a_classifier_of_other_classes(
    tmp_path: Path, filename: str
) -> None:
    path, parameters = tmp_path / filename, pretrained_parameters()
    if path.suffix == ".pth":
        torch.save({"state_dict": parameters}, path)
    else:
        save_file(parameters, path)

    model = timm_model("resnet18", SPEC, NUM_CLASSES, checkpoint=str(path))

    for name, value in model.state_dict().items():
        if not name.startswith("fc."):
            torch.testing.assert_close(value, parameters[name], rtol=0, atol=0)
    assert model.get_parameter("fc.weight").shape == (NUM_CLASSES, 512)


def test_a_checkpoint_of_as_many_classes_fills_the_classifier_too(tmp_path: Path) -> None:
    path, parameters = tmp_path / "model.safetensors", pretrained_parameters(NUM_CLASSES)
    save_file(parameters, path)

    model = timm_model("resnet18", SPEC, NUM_CLASSES, checkpoint=str(path))

    torch.testing.assert_close(model.get_parameter("fc.weight"), parameters["fc.weight"])


def test_a_checkpoint_of_another_network_names_what_differs(tmp_path: Path) -> None:
    path, parameters = tmp_path / "model.safetensors", pretrained_parameters()
    parameters["layer9.weight"] = parameters.pop("conv1.weight")
    save_file(parameters, path)

    with pytest.raises(ConfigError, match=r"2 tensors differ.* conv1\.weight, layer9\.weight"):
        timm_model("resnet18", SPEC, NUM_CLASSES, checkpoint=str(path))


@pytest.mark.parametrize("filename", ["model.safetensors", "model.pth"])
@pytest.mark.parametrize("content", [None, b"", b"no parameters"])
def test_a_checkpoint_that_cannot_be_read_is_an_error(
    tmp_path: Path, filename: str, content: bytes | None
) -> None:
    path = tmp_path / filename
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"cannot be read as parameters"):
        timm_model("resnet18", SPEC, NUM_CLASSES, checkpoint=str(path))


def test_a_misspelt_network_is_refused_with_similar_names() -> None:
    with pytest.raises(ConfigError, match=r"'resnet81'; did you mean one of .*resnet"):
        build_model(ModelConfig(name="timm:resnet81"), SPEC, NUM_CLASSES)


def test_an_unknown_tag_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'resnet18\.mine'; its tags are .*tv_in1k"):
        timm_model("resnet18.mine", SPEC, NUM_CLASSES)


def test_two_sources_of_parameters_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        timm_model("resnet18", SPEC, NUM_CLASSES, pretrained=True, checkpoint="file")


def test_real_weights_without_a_classifier_fit(shared: Path) -> None:
    path = shared / "weights" / "mobilenetv2_100.imagenet1k.safetensors"
    if not path.is_file():
        pytest.skip(f"no weights at {path}")

    model: nn.Module = timm_model("mobilenetv2_100", SPEC, NUM_CLASSES, checkpoint=str(path))

    stem = load_file(path)["conv_stem.weight"]
    torch.testing.assert_close(model.get_parameter("conv_stem.weight"), stem)


def test_without_the_hub_an_error_says_how_to_begin_from_a_file_or_at_random(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(ConfigError, match=r"model\.pretrained=false --set model\.checkpoint=FILE"):
        timm_model("resnet18.a1_in1k", SPEC, NUM_CLASSES, pretrained=True)


def test_without_a_network_weights_are_looked_for_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lookups: list[object]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(ConfigError, match=r"reached: .*not known.*model\.checkpoint=FILE"):
        timm_model("resnet18.a1_in1k", SPEC, NUM_CLASSES, pretrained=True)

    assert len(lookups) == 1


def test_random_parameters_need_no_hub(lookups: list[object]) -> None:
    timm_model("resnet18.a1_in1k", SPEC, NUM_CLASSES)

    assert lookups == []
