"""Recipes as TOML: what is read, what is refused, and in which words."""

import json
from pathlib import Path

import pytest

from difficulty_service.base.errors import ConfigError
from trainer.config import (
    FeatureData,
    ImageData,
    LossConfig,
    ModelConfig,
    Recipe,
    TrainingConfig,
)
from trainer.recipes.file import (
    read_recipe,
    recipe_as_dict,
    recipe_from_dict,
    shipped_recipes,
)
from trainer.recipes.tables import TABLES

LEAST = """
[data]
train = "photos/"
[model]
name = "resnet18"
[training]
epochs = 30
"""


@pytest.fixture
def least(tmp_path: Path) -> Path:
    """A file with no more than a recipe needs."""
    return write(tmp_path, LEAST)


def write(folder: Path, text: str) -> Path:
    file = folder / "recipe.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refusal(file: Path | str, *overrides: str) -> str:
    """The message about an invalid recipe, without the folder of the file."""
    with pytest.raises(ConfigError) as caught:
        read_recipe(file, overrides)
    assert "pydantic" not in str(caught.value)
    return str(caught.value)


def test_every_table_of_a_recipe_can_be_read() -> None:
    assert {*Recipe.model_fields} == {"name", *TABLES}


def test_a_recipe_is_called_like_its_file_unless_it_has_a_name(tmp_path: Path) -> None:
    unnamed = read_recipe(write(tmp_path, LEAST))
    named = read_recipe(write(tmp_path, f'name = "mine"\n{LEAST}'))

    assert (unnamed.name, named.name) == ("recipe", "mine")


def test_what_a_recipe_leaves_out_has_its_default(least: Path) -> None:
    recipe = read_recipe(least)

    assert recipe == Recipe(
        name="recipe",
        data=ImageData(train="photos/"),
        model=ModelConfig(name="resnet18"),
        training=TrainingConfig(epochs=30),
    )


def test_keys_beside_the_name_of_a_loss_or_model_are_its_settings(tmp_path: Path) -> None:
    text = LEAST.replace('"resnet18"', '"small_resnet"\nwidths = [16, 32]')

    recipe = read_recipe(write(tmp_path, f'{text}[loss]\nname = "focal"\ngamma = 2\n'))

    assert recipe.model == ModelConfig(name="small_resnet", options={"widths": (16, 32)})
    assert recipe.loss == LossConfig(name="focal", constants={"gamma": 2})


def test_a_shipped_recipe_is_found_by_name_with_and_without_its_ending() -> None:
    assert read_recipe("probe_quick") == read_recipe("probe_quick.toml")


def test_a_file_goes_before_a_shipped_recipe_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, LEAST).rename("probe_quick.toml")

    recipe = read_recipe("probe_quick.toml")

    assert recipe.model.name == "resnet18"


def test_an_unknown_recipe_is_refused_with_a_similar_name(least: Path) -> None:
    assert "did you mean probe_quick?" in refusal("probe_quik")
    assert "did you mean recipe.toml?" in refusal(least.with_name("recipes.toml"))
    assert "focal_cifar100" in refusal("no-such-thing")


def test_a_shipped_recipe_begins_with_a_summary() -> None:
    text = shipped_recipes()["cifar10_small_resnet"].read_text(encoding="utf-8")

    assert text.startswith("# Quick: a residual network")


@pytest.mark.parametrize(
    ("override", "table", "key", "value"),
    [
        ("training.seeds=[0, 1]", "training", "seeds", (0, 1)),
        ("optimiser.learning_rate=0.05", "optimiser", "learning_rate", 0.05),
        ("optimiser.nesterov=true", "optimiser", "nesterov", True),
        ("data.train=other/photos", "data", "train", "other/photos"),
        ('data.train="other photos"', "data", "train", "other photos"),
        ("data.train=2024-01-01", "data", "train", "2024-01-01"),
        ("data.train=s3://bucket/a=b", "data", "train", "s3://bucket/a=b"),
        ("loss.name=focal", "loss", "name", "focal"),
    ],
)
def test_an_override_is_toml_or_else_plain_text(
    least: Path, override: str, table: str, key: str, value: object
) -> None:
    recipe = read_recipe(least, [override])

    assert getattr(getattr(recipe, table), key) == value


def test_an_override_may_name_the_recipe_or_give_a_whole_table(least: Path) -> None:
    recipe = read_recipe(least, ["name=x", 'loss={name="focal", gamma=1}'])

    assert recipe.name == "x"
    assert recipe.loss == LossConfig(name="focal", constants={"gamma": 1})


def test_an_override_without_a_value_restores_the_default(tmp_path: Path) -> None:
    file = write(tmp_path, f"{LEAST}[optimiser]\ngradient_clip = 2\nlearning_rate = 1\n")

    recipe = read_recipe(file, ["optimiser.gradient_clip="])

    assert recipe.optimiser.gradient_clip is None
    assert recipe.optimiser.learning_rate == 1


def test_another_loss_drops_the_constants_of_the_one_before_and_keeps_its_own(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, f'{LEAST}[loss]\nname = "bsce"\ngamma = 4\nbeta = 1\n')

    same = read_recipe(file, ["loss.name=bsce"])
    other = read_recipe(file, ["loss.gamma=2", "loss.name=focal"])

    assert same.loss == LossConfig(name="bsce", constants={"gamma": 4, "beta": 1})
    assert other.loss == LossConfig(name="focal", constants={"gamma": 2})


def test_another_loss_keeps_how_far_labels_are_trusted(tmp_path: Path) -> None:
    trust = 'weights = "label_probability"\nscores = "s.parquet"\n'
    file = write(tmp_path, f'{LEAST}[loss]\nname = "bsce"\ngamma = 4\n{trust}')

    other = read_recipe(file, ["loss.name=focal"])

    assert other.loss == LossConfig(name="focal", weights="label_probability", scores="s.parquet")


def test_a_misspelt_key_of_any_loss_is_named_with_its_neighbours(least: Path) -> None:
    message = refusal(least, "loss.target=posterior")

    assert "target: no such key; did you mean targets?" in message


@pytest.mark.parametrize("override", ["training.epochs", "=3", "training.=3", "a.b.c=3"])
def test_an_override_that_sets_no_key_is_refused(least: Path, override: str) -> None:
    assert refusal(least, override).startswith(
        f"{override!r} is not a change of a recipe; give KEY"
    )


def test_an_unknown_key_is_named_with_its_neighbours(tmp_path: Path) -> None:
    file = write(tmp_path, LEAST.replace("epochs", "epoch"))

    message = refusal(file)

    assert (
        "[training] epoch: no such key; did you mean epochs? [training] takes epochs, " in message
    )
    assert "batch_size, seeds" in message
    assert "[training] epochs: is missing" in message


def test_an_override_of_an_unknown_key_is_refused_like_one_of_the_file(least: Path) -> None:
    message = refusal(least, "optimizer.learning_rate=1", "training.epoch=3")

    assert "recipe.toml with optimizer.learning_rate=1, training.epoch=3: " in message
    assert "[optimizer]: no such table; did you mean [optimiser]?" in message
    assert "[training] epoch: no such key" in message


def test_a_key_in_the_wrong_table_is_refused_with_the_right_table(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, f"batch_size = 4\n{LEAST}\nmomentum = 0.9\n"))

    assert "batch_size: no such key outside the tables; it belongs in [training]" in message
    assert "[training] momentum: no such key; it belongs in [optimiser]" in message


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("optimiser.learning_rate=-1", "optimiser.learning_rate = -1: must be greater than 0"),
        ("optimiser.learning_rate=nan", "optimiser.learning_rate = NaN: must be a finite number"),
        ("optimiser.learning_rate=fast", 'learning_rate = "fast": must be a number'),
        ("optimiser.momentum=1", "optimiser.momentum = 1: must be less than 1"),
        ("optimiser.nesterov=yes", 'optimiser.nesterov = "yes": must be true or false'),
        ("optimiser.name=adam", "optimiser.name = \"adam\": must be 'sgd', 'adamw' or 'adagrad'"),
        (
            'optimiser.name=["sgd"]',
            "optimiser.name = [\"sgd\"]: must be 'sgd', 'adamw' or 'adagrad'",
        ),
        (
            "data.kind=sound",
            "data.kind = \"sound\": must be 'images', 'features', 'text' or 'trees'",
        ),
        ("regulariser.alpha=-1", "regulariser.alpha = -1: must be at least 0"),
        ("training.epochs=3.0", "training.epochs = 3.0: must be a whole number"),
        ("training.seeds=3", "training.seeds = 3: must be a list"),
        ("training.seeds=[]", "training.seeds = []: must be a list of at least 1"),
        ("training.seeds=[0, 1.5]", "training.seeds[1] = 1.5: must be a whole number"),
        ("data.train=3", "data.train = 3: must be text"),
        ("data.validation=1.5", "data.validation = 1.5: must be less than 1, or text"),
        ("data=3", "data = 3: must be a table, [data]"),
        ("name=3", "name = 3: must be text"),
        ("loss.name=focall", 'loss.name = "focall": no such loss; did you mean focal?'),
        ("model.name=resnet181", 'model.name = "resnet181": no such model; did you mean resnet18?'),
        ("model.depth=18", '[model] of name "resnet18" depth: no such key.'),
        ("model={name='wide_resnet', depth='28'}", 'model.depth = "28": must be a whole number'),
        ("loss.gamma=3", '[loss] of name "cross_entropy" gamma: no such key. [loss]'),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(
    least: Path, override: str, expected: str
) -> None:
    assert expected in refusal(least, override)


def test_a_name_of_two_networks_is_refused_with_both(least: Path) -> None:
    message = refusal(least, "model.name=resnet110")

    assert 'model.name = "resnet110": two networks have this name' in message
    assert "resnet110_bottleneck" in message
    assert "resnet110_basic" in message


def test_a_name_of_two_networks_is_never_suggested(least: Path) -> None:
    message = refusal(least, "model.name=resnet111")

    assert "resnet110_basic, resnet110_bottleneck" in message
    assert "resnet110," not in message
    assert "mean resnet110?" not in message


def test_one_message_lists_all_that_is_wrong(least: Path) -> None:
    message = refusal(least, "training.epochs=0", "optimiser.name=adam", "data.trian=x")

    heading, *problems = message.splitlines()
    assert heading.endswith(": 3 problems")
    assert len(problems) == 3


def test_broken_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "[data]\ntrain = photos/\n")

    message = refusal(file)

    assert message.startswith(f"{file} is not valid TOML")
    assert "line 2" in message


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_bytes(b"\xff\xfe")

    assert "not text in UTF-8" in refusal(file)


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
def test_whoever_names_data_in_the_place_of_a_recipe_is_told_where_it_goes(
    tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "my data"
    if kind == "folder":
        place.mkdir()
    else:
        place.write_bytes({"csv": b"path,label\na.png,cat\n", "parquet": b"PAR1\xff\xfe"}[kind])

    assert refusal(place).endswith(
        "to train on a dataset or on features, choose a recipe by `difficulty train --list` and "
        f"add --set data.train='{place}'"
    )


def test_a_recipe_survives_json() -> None:
    recipe = Recipe(
        name="mine",
        data=FeatureData(train="photos/", test="others/", validation=0.2, limit=10),
        model=ModelConfig(name="probe", options={"hidden": (512, 256)}),
        training=TrainingConfig(epochs=3, seeds=(1, 2), ema_decay=0.99),
        loss=LossConfig(name="adafocal", constants={"limits": (-1.0, 5.0)}),
    )

    values = json.loads(json.dumps(recipe_as_dict(recipe)))

    assert values["model"] == {"name": "probe", "hidden": [512, 256]}
    assert recipe_from_dict(values, "run") == recipe


def test_values_from_elsewhere_are_refused_in_the_name_of_their_source() -> None:
    with pytest.raises(ConfigError, match=r"^run/recipe.json: .*problems\n  name = null"):
        recipe_from_dict({"training": {"epochs": 1}}, "run/recipe.json")
