"""The recipes that come with the package."""

import re
from pathlib import Path

import pytest
import torch

from trainer.losses import LOSSES, LOSSES_WITH_MEMORY
from trainer.models import MODELS, build_model
from trainer.recipes.file import (
    read_recipe,
    recipe_as_dict,
    recipe_from_dict,
    shipped_recipes,
)
from trainer.samples import InputSpec

FOCAL_FAMILY = (
    "adafocal_cifar10",
    "adafocal_cifar100",
    "bsce_gra_cifar10",
    "bsce_gra_cifar100",
    "cross_entropy_cifar10",
    "dual_focal_cifar10",
    "dual_focal_cifar100",
    "focal_cifar10",
    "focal_cifar100",
    "mmce_cifar10",
)
SPECS = {
    "images": InputSpec((3, 32, 32), torch.zeros(3), torch.ones(3)),
    "features": InputSpec((8,), torch.zeros(8), torch.ones(8)),
    "text": InputSpec((20,), vocabulary=("padding", "unknown", "word"), padding=0),
    "trees": InputSpec((), vocabulary=("padding", "unknown", "word")),
}
RECIPES = tuple(shipped_recipes())
LIST = r"([a-z]\S*(?:,? (?:or )?[a-z][\w:]*)*)"
"""A name, and those that a sentence lists after it."""
OURS = (
    "cifar10_resnet34_gpu",
    "cifar10_small_resnet",
    "fine_tune_resnet50",
    "fine_tune_vit_b",
    "newsgroups_quick",
    "probe_quick",
    "sst_quick",
    "uncertainty",
)
PRETRAINED = ("adafocal_newsgroups_bert", "fine_tune_resnet50", "fine_tune_vit_b")
OF_PAPERS = tuple(name for name in RECIPES if name not in OURS)

# Classes of the data, and trainable parameters of the published code's network for them: counted
# from its layers, or for ResNet-34, of which no code was published, those that are usual.
PARAMETERS = {
    "adafocal_cifar10": (10, 23_520_842),
    "adafocal_cifar100": (100, 23_705_252),
    "adafocal_imagenet": (1000, 25_557_032),
    # BERT-base has 109,482,240, and 590,592 of them above the first token, which are not used.
    "adafocal_newsgroups_bert": (20, 109_482_240 - 590_592 + 20 * 769),
    "brier_cifar10": (10, 23_520_842),
    "bsce_gra_cifar10": (10, 23_520_842),
    "bsce_gra_cifar100": (100, 23_705_252),
    "cifar10_resnet34_gpu": (10, 21_282_122),
    "cifar10_small_resnet": (10, 2_154_090),
    "cross_entropy_cifar10": (10, 23_520_842),
    "dual_focal_cifar10": (10, 23_520_842),
    "dual_focal_cifar100": (100, 23_705_252),
    # As torchvision's, without the classifier for 1,000 classes.
    "fine_tune_resnet50": (10, 25_557_032 - 990 * 2049),
    "fine_tune_vit_b": (10, 86_567_656 - 990 * 769),
    "focal_cifar10": (10, 23_520_842),
    "focal_cifar100": (100, 23_705_252),
    # Frozen vectors; 100 -> 128 -> 128 -> 128 channels, five words wide, and 128 -> 128 -> 20.
    "focal_newsgroups": (20, 64_128 + 2 * 82_048 + 16_512 + 2_580),
    # The classifier sees 2x2 times 2,048 channels.
    "focal_tiny_imagenet": (200, 23_500_352 + 200 * (4 * 2048 + 1)),
    "mmce_cifar10": (10, 23_520_842),
    # Three words with vectors of 100 numbers, which are trained.
    "newsgroups_quick": (20, 300 + 64_128 + 2 * 82_048 + 16_512 + 2_580),
    "probe_quick": (10, 512 * (8 + 1) + 10 * (512 + 1)),
    "sample_difficulty_cifar10": (10, 21_282_122),
    "sample_difficulty_cifar100": (100, 21_328_292),
    "sample_difficulty_imagenet": (1000, 21_797_672),
    # Three words; 64 -> 2 * 64 at leaves and 2 * 64 -> 5 * 64 above them, and 64 -> 2.
    "sst_quick": (2, 192 + 128 * 65 + 320 * 129 + 130),
    # Vectors of 300 numbers and 150 hidden units, as Tai et al. have them.
    "tree_lstm_sst": (2, 900 + 300 * 301 + 750 * 301 + 302),
    "uncertainty": (10, 10 * (8 + 1)),
}


def header(name: str) -> str:
    """The comments at the top of a recipe."""
    lines = shipped_recipes()[name].read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    return "\n".join(line.removeprefix("# ") for line in lines)


@pytest.mark.parametrize("name", RECIPES)
def test_every_shipped_recipe_is_valid_and_called_like_its_file(name: str) -> None:
    recipe = read_recipe(name)

    assert recipe.name == name


@pytest.mark.parametrize("name", RECIPES)
def test_every_shipped_recipe_survives_being_written_as_values(name: str) -> None:
    recipe = read_recipe(name)

    assert recipe_from_dict(recipe_as_dict(recipe), name) == recipe


@pytest.mark.parametrize("name", RECIPES)
def test_every_shipped_recipe_opens_with_a_line_that_says_what_it_is(name: str) -> None:
    text = shipped_recipes()[name].read_text(encoding="utf-8")

    assert text.startswith("# ")
    assert text.splitlines()[0].endswith(".")
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", OF_PAPERS)
def test_a_recipe_of_a_paper_says_what_is_the_papers_the_codes_and_ours(name: str) -> None:
    lines = header(name).splitlines()

    labels = [line.split()[0] for line in lines if line.startswith(("Paper:", "Code:", "Ours:"))]

    assert labels == ["Paper:", "Code:", "Ours:"]


@pytest.mark.parametrize("name", RECIPES)
def test_changes_that_a_recipe_suggests_can_be_made(name: str) -> None:
    text = " ".join(header(name).split())
    suggestions = [
        [change.rstrip(",.;:)") for change in re.findall(r"--set ([\w.]+=(?!\.)\S*)", sequence)]
        for sequence in re.findall(r"(?:--set \S+=\S*\s*)+", text)
    ]

    for changes in suggestions:
        assert read_recipe(name, changes)


@pytest.mark.parametrize("name", RECIPES)
def test_networks_and_losses_that_a_recipe_suggests_exist(name: str) -> None:
    text = re.sub(r" \([^)]*\)", "", " ".join(header(name).split()))
    names = {
        choice
        for table in ("model", "loss")
        for choices in re.findall(
            rf"--set {table}\.name=([a-z]\S*(?:,? (?:or )?[a-z][\w:]*)*)", text
        )
        for choice in re.findall(r"[a-z][a-z0-9:_]*[0-9_][a-z0-9_]*", choices)
    }

    unknown = {
        choice
        for choice in names - MODELS.keys() - LOSSES.keys() - LOSSES_WITH_MEMORY.keys()
        if not choice.startswith("timm:")
    }

    assert unknown == set()


@pytest.mark.parametrize(
    "name",
    ["cross_entropy_cifar10", "focal_cifar100", "focal_tiny_imagenet", "focal_newsgroups"],
)
def test_smoothing_by_0_05_over_the_other_classes_is_in_terms_of_pytorch(name: str) -> None:
    classes, _ = PARAMETERS[name]

    smoothing = re.findall(r"loss\.smoothing=(\S+)", header(name))

    assert [float(value) for value in smoothing] == [
        pytest.approx(0.05 * classes / (classes - 1), abs=5e-5)
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_the_model_of_every_shipped_recipe_has_the_parameters_of_its_reference(
    tmp_path: Path, name: str
) -> None:
    classes, parameters = PARAMETERS[name]
    glove = tmp_path / "glove.txt"
    dims = {"focal_newsgroups": 100, "tree_lstm_sst": 300}
    glove.write_text("word" + " 0.5" * dims.get(name, 0) + "\n")
    changes = [f"model.embeddings={glove}"] if name in dims else []
    changes += ["model.pretrained=false"] if name in PRETRAINED else []
    if name.endswith("_bert"):
        transformers = pytest.importorskip("transformers")
        transformers.BertConfig().save_pretrained(tmp_path / "bert")
        changes.append(f"model.name=transformers:{tmp_path / 'bert'}")
    recipe = read_recipe(name, changes)

    with torch.device("meta" if recipe.data.kind == "images" else "cpu"):
        model = build_model(recipe.model, SPECS[recipe.data.kind], classes)

    trained = [each for each in model.parameters() if each.requires_grad]
    assert sum(parameter.numel() for parameter in trained) == parameters


def test_the_newsgroups_recipe_has_the_published_dropout_and_frozen_vectors() -> None:
    options = read_recipe("focal_newsgroups").model.options

    assert options["dropout"] == 0.3
    assert options["freeze_embeddings"] is True
    assert options["embeddings"].endswith("glove.6B.100d.txt")


def test_the_published_reduction_is_the_mean_for_the_brier_loss_alone() -> None:
    reductions = {name: read_recipe(name).training.reduction for name in FOCAL_FAMILY}

    assert read_recipe("brier_cifar10").training.reduction == "mean"
    assert set(reductions.values()) == {"sum"}
    assert "training.reduction=mean" in header("focal_newsgroups")


@pytest.mark.parametrize("loss", sorted({*LOSSES, *LOSSES_WITH_MEMORY} - {"mmce_weighted"}))
def test_every_loss_can_be_set_in_place_of_that_of_a_published_recipe(loss: str) -> None:
    recipe = read_recipe("mmce_cifar10", [f"loss.name={loss}"])

    assert recipe.loss.name == loss
    assert recipe.loss.constants == {}


@pytest.mark.parametrize("name", FOCAL_FAMILY)
def test_the_focal_family_sums_losses_and_clips_gradients_as_published(name: str) -> None:
    recipe = read_recipe(name)

    assert (recipe.training.epochs, recipe.training.batch_size) == (350, 128)
    assert recipe.schedule.milestones == (150, 250)
    assert recipe.training.reduction == "sum"
    assert recipe.optimiser.gradient_clip == 2
    assert recipe.optimiser.weight_decay == 5e-4


@pytest.mark.parametrize(
    ("name", "alpha"),
    [
        ("sample_difficulty_cifar10", 0.3),
        ("sample_difficulty_cifar100", 0.3),
        ("sample_difficulty_imagenet", 0.2),
    ],
)
def test_the_sample_difficulty_recipes_have_the_published_constants(
    name: str, alpha: float
) -> None:
    recipe = read_recipe(name)

    assert (recipe.regulariser.alpha, recipe.regulariser.score_temperature) == (alpha, 0.7)
    assert recipe.regulariser.weights == "scores"
    assert (recipe.optimiser.momentum, recipe.optimiser.weight_decay) == (0.9, 1e-4)
    assert len(recipe.training.seeds) == 5
