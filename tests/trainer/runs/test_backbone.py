"""A finished run as a backbone: its features are what its own classifier takes."""

import hashlib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import difficulty_service as ds
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.clip_text import load_text_encoder
from difficulty_service.backbones.plugged import PLUGIN_GROUP, list_plugins
from difficulty_service.base.errors import BackboneError
from difficulty_service.features.array_files import open_features
from difficulty_service.images.preparation import normalise
from tests.factories import write_image_folder
from tests.small_runs import finish
from trainer.config import Recipe
from trainer.recipes.file import recipe_from_dict
from trainer.run_folder import read_json, seed_folders, write_json
from trainer.runs.evaluate import load_model

MakeRecipe = Callable[..., Recipe]
SIZE = 8
SMALL = {"name": "small_resnet", "widths": [4, 8], "blocks": [1, 1]}
PIXELS = torch.randint(
    0, 256, (6, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)


class Conv(nn.Module):
    """A network of a user, whose logits are divided by a temperature after the last layer."""

    def __init__(self, num_classes: int, divisor: float = 1.0) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 3)
        self.head = nn.Linear(5, num_classes)
        self.divisor = divisor

    def forward(self, images: Tensor) -> Tensor:
        logits = self.head(self.stem(images).mean((2, 3)))
        return logits if self.divisor == 1 else logits / self.divisor


def plain_recipe(images: str, model: dict[str, object], **data: object) -> Recipe:
    """One epoch on twelve images, without augmentation unless it is named."""
    values = {
        "name": "tiny",
        "data": {"train": images, "limit": 12, "validation": 0.0, **data},
        "model": model,
        "training": {"epochs": 1, "batch_size": 12, "precision": "fp32"},
    }
    return recipe_from_dict(values, "the recipe of the test")


def copied(seed: Path, copy: Path) -> Path:
    """A copy of the files of a seed."""
    copy.mkdir()
    for file in seed.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    return copy


def features_of(name: str, **options: object) -> Tensor:
    backbone = load_backbone(name, BackboneOptions(**options))
    return backbone.encode(normalise(PIXELS, backbone.preprocessing, torch.float32))


@pytest.fixture(scope="module")
def trained(images: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one seed."""
    return finish(plain_recipe(images, SMALL), tmp_path_factory.mktemp("run")).parent


@pytest.fixture(autouse=True)
def own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes may name the network of this file."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.parametrize(
    ("model", "classifier"),
    [
        (SMALL, "classifier"),
        ({"name": "wide_resnet", "depth": 8, "widen": 1}, "classifier"),
        ({"name": "timm:test_vit"}, "head"),
        ({"name": "test_backbone:Conv"}, "head"),
    ],
    ids=["small_resnet", "wide_resnet", "timm", "own"],
)
def test_the_classifier_of_a_run_makes_its_logits_of_the_features(
    images: str, tmp_path: Path, model: dict[str, object], classifier: str
) -> None:
    sized = {"image_size": 160} if model["name"] == "timm:test_vit" else {}
    seed = finish(plain_recipe(images, model, **sized), tmp_path)
    backbone = load_backbone(f"run:{seed}", BackboneOptions())
    pixels = nn.functional.interpolate(PIXELS, backbone.preprocessing.size)

    features = backbone.encode(normalise(pixels, backbone.preprocessing, torch.float32))

    parameters = load_file(seed / "model.safetensors")
    weight, bias = (parameters[f"network.{classifier}.{part}"] for part in ("weight", "bias"))
    with torch.no_grad():
        expected = load_model(seed, "cpu").model(pixels)
    assert features.shape == (len(PIXELS), weight.shape[1])
    torch.testing.assert_close(features @ weight.T + bias, expected, rtol=1e-4, atol=1e-4)


def test_the_weights_of_a_run_load_in_the_backbone_of_timm(images: str, tmp_path: Path) -> None:
    seed = finish(plain_recipe(images, {"name": "timm:test_vit"}, image_size=160), tmp_path)
    weights = str(seed / "model.safetensors")
    pixels = nn.functional.interpolate(PIXELS, 160)

    backbone = load_backbone("timm:test_vit", BackboneOptions(weights=weights))

    features = backbone.encode(normalise(pixels, backbone.preprocessing, torch.float32))
    run = load_backbone(f"run:{seed}", BackboneOptions())
    expected = run.encode(normalise(pixels, run.preprocessing, torch.float32))
    assert backbone.preprocessing.mean == run.preprocessing.mean
    assert backbone.preprocessing.std == run.preprocessing.std
    assert backbone.weights_sha256 == run.weights_sha256
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-5)


def test_size_normalisation_hash_and_absolute_name_are_those_of_the_run(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.parent)
    weights = trained / "seed-0" / "model.safetensors"

    backbone = load_backbone(f"run:{trained.name}", BackboneOptions())

    spec = load_model(trained / "seed-0", "cpu").spec
    preprocessing = backbone.preprocessing
    assert backbone.name == f"run:{trained / 'seed-0'}"
    assert backbone.weights_sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert (preprocessing.size, preprocessing.resize) == (SIZE, SIZE)
    assert preprocessing.interpolation == "bilinear"
    torch.testing.assert_close(torch.tensor(preprocessing.mean) * 255, spec.mean)
    torch.testing.assert_close(torch.tensor(preprocessing.std) * 255, spec.std)


def test_images_of_random_resized_crops_keep_the_margin_of_evaluation(
    trained: Path, tmp_path: Path
) -> None:
    seed = copied(trained / "seed-0", tmp_path / "seed-0")
    described = read_json(seed / "recipe.json")
    described["recipe"]["data"]["augmentation"] = "random_resized_crop"
    write_json(seed / "recipe.json", described)

    preprocessing = load_backbone(f"run:{seed}", BackboneOptions()).preprocessing

    assert (preprocessing.size, preprocessing.resize) == (SIZE, round(SIZE * 256 / 224))


def test_scores_with_a_run_name_it_and_its_weights(
    trained: Path, images: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)

    scores = ds.score_dataset(images, backbone="run:.", out=tmp_path / "scores.parquet")

    store = open_features(tmp_path / "scores.features")
    assert scores.provenance.backbone == f"run:{trained / 'seed-0'}"
    assert scores.provenance.weights_sha256 == store.description.weights_sha256
    assert store.description.preprocessing is not None
    assert store.description.preprocessing["size"] == SIZE
    assert len(scores.table) == 60


def test_a_run_of_several_seeds_needs_one_of_them_to_be_named(
    trained: Path, tmp_path: Path
) -> None:
    for number in (0, 1):
        (tmp_path / f"seed-{number}").symlink_to(trained / "seed-0")

    with pytest.raises(BackboneError, match="several networks: seed-0, seed-1; name one"):
        load_backbone(f"run:{tmp_path}", BackboneOptions())

    assert len(seed_folders(tmp_path)) == 2
    assert features_of(f"run:{tmp_path / 'seed-1'}").shape == (6, 8)


@pytest.mark.parametrize(
    ("kind", "location", "model"),
    [
        ("features", "FEATURES", "probe"),
        ("text", "TEXTS", "text_cnn"),
        ("trees", "TREES", "tree_lstm"),
    ],
)
def test_runs_on_anything_but_images_are_refused(
    locations: dict[str, str], tmp_path: Path, kind: str, location: str, model: str
) -> None:
    phrases = {"phrases": False} if kind == "trees" else {}
    recipe = plain_recipe(locations[location], {"name": model}, kind=kind, **phrases)
    seed = finish(recipe, tmp_path)

    with pytest.raises(BackboneError, match=f"on {kind}, and a backbone takes images"):
        load_backbone(f"run:{seed}", BackboneOptions())


def test_an_unfinished_run_is_refused(image_recipe: MakeRecipe, tmp_path: Path) -> None:
    finish(image_recipe(), tmp_path, stop=True)

    with pytest.raises(BackboneError, match=r"seed-0 is not finished; go on with .*--resume"):
        load_backbone(f"run:{tmp_path}", BackboneOptions())


@pytest.mark.parametrize("name", ["model.safetensors", "inputs.json", "recipe.json"])
def test_a_damaged_run_is_refused(trained: Path, tmp_path: Path, name: str) -> None:
    seed = copied(trained / "seed-0", tmp_path / "seed-0")
    (seed / name).write_bytes((seed / name).read_bytes()[:-20])

    with pytest.raises(BackboneError, match=rf"{name} is damaged .*; train again"):
        load_backbone(f"run:{seed}", BackboneOptions())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"weights": "other.safetensors"}, "has weights of its own; leave out weights"),
        ({"features": "projected"}, "has no projection"),
        ({"features": "last"}, "expected penultimate or projected"),
    ],
)
def test_options_without_a_meaning_for_a_run_are_refused(
    trained: Path, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(BackboneError, match=reason):
        features_of(f"run:{trained}", **options)


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"holds no run.*`difficulty train` wrote"):
        load_backbone(f"run:{tmp_path}", BackboneOptions())


def test_a_network_for_images_that_are_not_square_is_refused(tmp_path: Path) -> None:
    images = write_image_folder(tmp_path / "images", each=6, size=(8, 12))
    seed = finish(plain_recipe(str(images), SMALL), tmp_path / "run")

    with pytest.raises(BackboneError, match="12 x 8 pixels, and a backbone square ones"):
        load_backbone(f"run:{seed}", BackboneOptions())


def test_a_network_whose_logits_are_not_those_of_a_linear_layer_is_refused(
    images: str, tmp_path: Path
) -> None:
    seed = finish(plain_recipe(images, {"name": "test_backbone:Conv", "divisor": 2.0}), tmp_path)

    with pytest.raises(BackboneError, match="does not end in a linear layer"):
        load_backbone(f"run:{seed}", BackboneOptions())


def test_a_prefix_that_no_package_offers_is_refused() -> None:
    with pytest.raises(BackboneError, match=r"unknown backbone 'ran:folder'; .*run:NAME"):
        load_backbone("ran:folder", BackboneOptions())


def test_the_listing_says_what_runs_are() -> None:
    assert list_plugins() == [
        ("run:FOLDER", "A network that `difficulty train` trained on images, at its own size")
    ]
    assert [each.name for each in entry_points(group=PLUGIN_GROUP)] == ["run"]


def test_a_run_knows_no_words(trained: Path) -> None:
    with pytest.raises(BackboneError, match="has no text encoder"):
        load_text_encoder(f"run:{trained}", BackboneOptions())
