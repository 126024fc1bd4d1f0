"""A key without an effect is an error: every key of every table, in every sort of recipe."""

from pathlib import Path

import pytest

from difficulty_service.base.errors import ConfigError
from trainer.config.table import Needs
from trainer.recipes.file import read_recipe, recipe_as_dict, recipe_from_dict
from trainer.recipes.tables import TABLES, defaults_of, keys_of_table

PROBE = ["data.kind=features", "model.name=probe"]

RECIPES = {
    "features": PROBE,
    "labels": ["data.kind=features", "model.name=probe", "data.labels=labels.parquet"],
    "images": ["model.name=resnet18"],
    "crops": ["model.name=resnet18", "data.augmentation=flip_crop"],
    "memory": ["model.name=resnet18", "data.in_memory=true"],
    "tested": ["model.name=resnet18", "data.test=test"],
    "validated": ["model.name=resnet18", "data.validation=validation"],
    "text": ["data.kind=text", "model.name=text_cnn"],
    "subwords": ["data.kind=text", "model.name=transformers:bert"],
    "trees": ["data.kind=trees", "model.name=tree_lstm"],
    "scores": ["model.name=resnet18", "regulariser={alpha=0.3, weights='scores'}"],
    "raw scores": [
        "model.name=resnet18",
        "regulariser={alpha=0.3, weights='scores', normalise='none'}",
    ],
    "weighed labels": ["model.name=resnet18", "loss.weights=label_probability"],
    "second labels": ["model.name=resnet18", "loss.targets=posterior"],
    "paced": ["model.name=resnet18", "sampling.order=easy_first"],
    "mixed": ["model.name=resnet18", "sampling.order=mixed"],
    "mixed images": ["model.name=resnet18", "training.mixing=mixup"],
    "adamw": ["model.name=resnet18", "optimiser.name=adamw"],
    "steps": ["model.name=resnet18", "schedule={name='steps', milestones=[0.5]}"],
    "best": ["model.name=resnet18", "training.final=best"],
    "ranked": [*PROBE, "uncertainty.epochs=2"],
    "squared": [*PROBE, "uncertainty={epochs=2, objective='squared'}"],
}
"""Changes of the smallest recipe, by a name for the result."""

EVERY = set(RECIPES)
HEADS = {"ranked", "squared"}
OF_FEATURES = {"features", "labels", *HEADS}
WORDS = {"text", "subwords", "trees"}
OF_IMAGES = EVERY - OF_FEATURES - WORDS
OF_TABLES = EVERY - {"features", *HEADS}
SCORED = {"scores", "raw scores"}
DOUBTED = {"weighed labels", "second labels"}
ORDERED = {"paced", "mixed"}
SGD = EVERY - {"adamw"}

EFFECTS: dict[str, tuple[str, set[str]]] = {
    "data.train": ("photos", EVERY),
    "data.kind": ("", EVERY),
    "data.test": ("others", EVERY),
    "data.validation": ("0.2", EVERY),
    "data.split": ("train", OF_TABLES),
    "data.validation_split": ("val", {"validated"}),
    "data.test_split": ("test", {"tested"}),
    "data.image_column": ("image", OF_TABLES - WORDS),
    "data.text_column": ("text", WORDS),
    "data.label_column": ("label", OF_TABLES),
    "data.test_label_column": ("label", {"tested"}),
    "data.id_column": ("id", OF_TABLES),
    "data.distribution_column": ("votes", OF_TABLES - {"trees", "second labels"}),
    "data.labels": ("noisy.parquet", OF_FEATURES),
    "data.limit": ("10", EVERY),
    "data.format": ("image-folder", OF_IMAGES),
    "data.image_size": ("32", OF_IMAGES),
    "data.max_pixels": ("50000000", OF_IMAGES),
    "data.pixel_range": ("0:4095", OF_IMAGES),
    "data.bands": ("4,3,2", OF_IMAGES),
    "data.page": ("middle", OF_IMAGES),
    "data.on_error": ("skip", OF_IMAGES),
    "data.augmentation": ("none", OF_IMAGES),
    "data.crop_padding": ("4", {"crops"}),
    "data.label_noise": ("0.0", EVERY),
    "data.text_length": ("1000", {"text", "subwords"}),
    "data.vocabulary_size": ("30000", WORDS - {"subwords"}),
    "data.phrases": ("true", {"trees"}),
    "data.in_memory": ("true", OF_IMAGES),
    "data.workers": ("2", OF_IMAGES - {"memory"}),
    "model.name": ("", EVERY),
    "loss.name": ("cross_entropy", EVERY),
    "loss.weights": ("constant", EVERY),
    "loss.targets": ("labels", EVERY),
    "loss.scores": ("scores.parquet", DOUBTED),
    "loss.missing": ("error", DOUBTED),
    "regulariser.alpha": ("0.3", EVERY),
    "regulariser.weights": ("constant", EVERY),
    "regulariser.scores": ("scores.parquet", SCORED),
    "regulariser.column": ("rmd", SCORED),
    "regulariser.normalise": ("minmax", SCORED),
    "regulariser.winsorise": ("0.001", {"scores"}),
    "regulariser.score_temperature": ("0.7", SCORED),
    "regulariser.c": ("0.001", SCORED),
    "regulariser.missing": ("error", SCORED),
    "regulariser.unreliable": ("error", SCORED),
    "sampling.order": ("random", EVERY),
    "sampling.scores": ("scores.parquet", ORDERED),
    "sampling.column": ("rmd", ORDERED),
    "sampling.start": ("0.2", {"paced"}),
    "sampling.until": ("0.5", {"paced"}),
    "optimiser.name": ("sgd", EVERY),
    "optimiser.learning_rate": ("0.1", EVERY),
    "optimiser.momentum": ("0.9", SGD),
    "optimiser.nesterov": ("false", SGD),
    "optimiser.weight_decay": ("0.0", EVERY),
    "optimiser.gradient_clip": ("2", EVERY),
    "schedule.name": ("cosine", EVERY),
    "schedule.milestones": ("[0.5]", {"steps"}),
    "schedule.factor": ("0.1", {"steps"}),
    "schedule.warmup": ("0.0", EVERY),
    "training.epochs": ("3", EVERY),
    "training.batch_size": ("128", EVERY),
    "training.seeds": ("[0]", EVERY),
    "training.reduction": ("mean", EVERY),
    "training.precision": ("auto", EVERY),
    "training.mixing": ("none", OF_IMAGES),
    "training.mixing_alpha": ("0.5", {"mixed images"}),
    "training.gradient_accumulation": ("2", EVERY - {"trees"}),
    "training.channels_last": ("true", OF_IMAGES),
    "training.compile": ("false", EVERY),
    "training.ema_decay": ("0.5", EVERY),
    "training.sync_batchnorm": ("false", EVERY),
    "training.dynamics": ("true", EVERY - {"mixed images"}),
    "training.fsdp": ("false", EVERY),
    "training.trackers": ("[]", EVERY),
    "training.checkpoint_every": ("1", EVERY),
    "training.evaluation_batch_size": ("512", EVERY),
    "training.final": ("last", EVERY),
    "training.best_by": ("accuracy", {"best"}),
    "uncertainty.epochs": ("0", OF_FEATURES),
    "uncertainty.objective": ("ranking", HEADS),
    "uncertainty.margin": ("0.1", {"ranked"}),
    "uncertainty.leeway": ("0.0", {"ranked"}),
    "uncertainty.hidden": ("[512, 512]", HEADS),
    "uncertainty.batch_size": ("256", HEADS),
    "uncertainty.learning_rate": ("0.001", HEADS),
    "uncertainty.weight_decay": ("0.0001", HEADS),
    "uncertainty.warmup": ("0.05", HEADS),
}
"""A value of every key, its default where it has one, and the recipes in which the key counts."""

DECLARED = [
    (f"{table}.{key}", need)
    for table, kinds in TABLES.items()
    for member in kinds.members.values()
    for key, field in member.model_fields.items()
    for need in field.metadata
    if isinstance(need, Needs)
]
CONDITIONAL = {key for key, _ in DECLARED} | {
    f"{table}.{key}"
    for table, kinds in TABLES.items()
    for member in kinds.members.values()
    for key in kinds.fields().keys() - member.model_fields.keys()
}
"""Keys that belong to some kinds only, or declare what they need."""

TAGS = {f"{table}.{kinds.tag}" for table, kinds in TABLES.items() if kinds.tag}
DECISIVE = TAGS | {key for _, need in DECLARED for key in need.keys}
"""Keys that other keys depend on; changed by the recipes themselves."""

REFUSED = [(key, name) for key, (_, names) in EFFECTS.items() for name in sorted(EVERY - names)]
TAKEN = [
    (key, name)
    for key, (value, names) in EFFECTS.items()
    for name in sorted(names)
    if value and key not in DECISIVE
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The recipes as files."""
    folder = tmp_path_factory.mktemp("recipes")
    paths = {}
    for name, changes in RECIPES.items():
        tables: dict[str, list[str]] = {"data": ['train = "photos"'], "training": ["epochs = 3"]}
        for change in changes:
            key, _, value = change.partition("=")
            table, _, entry = key.partition(".")
            if not entry:
                entries = value.strip("{}").replace("'", '"').split(", ")
                tables[table] = entries
                continue
            plain = value in {"true", "false"} or value.isdecimal()
            shown = value if plain else f'"{value}"'
            tables.setdefault(table, []).append(f"{entry} = {shown}")
        text = "\n".join(f"[{table}]\n" + "\n".join(lines) for table, lines in tables.items())
        paths[name] = folder / f"{name}.toml"
        paths[name].write_text(text, encoding="utf-8")
    return paths


def test_the_walk_meets_every_key_of_every_table() -> None:
    keys = {f"{table}.{key}" for table in TABLES for key in keys_of_table(table)}

    assert set(EFFECTS) == keys
    assert {key for key, (_, names) in EFFECTS.items() if names != EVERY} == CONDITIONAL


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_of_the_walk_is_valid_and_survives_being_written_as_values(
    files: dict[str, Path], name: str
) -> None:
    recipe = read_recipe(files[name])

    assert recipe_from_dict(recipe_as_dict(recipe), "values") == recipe


@pytest.mark.parametrize(("key", "name"), REFUSED)
def test_a_key_without_an_effect_is_refused_even_with_its_default(
    files: dict[str, Path], key: str, name: str
) -> None:
    value = EFFECTS[key][0]

    with pytest.raises(ConfigError, match=rf"{key.replace('.', '[.]')} = .*has no effect"):
        read_recipe(files[name], [f"{key}={value}"])


@pytest.mark.parametrize(("key", "name"), TAKEN)
def test_a_key_with_an_effect_is_taken(files: dict[str, Path], key: str, name: str) -> None:
    read_recipe(files[name], [f"{key}={EFFECTS[key][0]}"])


@pytest.mark.parametrize(
    ("name", "change", "key"),
    [
        ("crops", "data.augmentation=none", "data.crop_padding"),
        ("steps", "schedule.name=cosine", "schedule.milestones"),
        ("steps", "schedule={name='constant'}", "schedule.milestones"),
        ("raw scores", "regulariser.weights=constant", "regulariser.normalise"),
    ],
)
def test_a_change_removes_the_keys_of_the_file_that_belong_to_the_value_before(
    files: dict[str, Path], name: str, change: str, key: str
) -> None:
    recipe = read_recipe(files[name], [change])

    table, entry = key.split(".")
    default = defaults_of(table)[entry]
    assert getattr(getattr(recipe, table), entry, default) == default
    assert read_recipe(files[name]) != recipe


def test_a_key_without_an_effect_in_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(
        '[data]\ntrain="photos"\n[model]\nname="resnet18"\n[training]\nepochs=3\n'
        '[regulariser]\ncolumn = "rmd"\n'
    )

    with pytest.raises(ConfigError, match=r'column = "rmd": has no effect with regulariser.weig'):
        read_recipe(file)
    with pytest.raises(ConfigError, match=r'column = "rmd": has no effect'):
        read_recipe(file, ["training.epochs=4"])


def test_values_of_an_earlier_run_may_hold_defaults_without_an_effect(
    files: dict[str, Path],
) -> None:
    values = recipe_as_dict(read_recipe(files["features"]))

    assert values["regulariser"]["column"] == "rmd"
    assert recipe_from_dict(values, "run").data.kind == "features"
    with pytest.raises(ConfigError, match="has no effect"):
        recipe_from_dict(values | {"regulariser": {"column": "knn"}}, "run")


def test_alpha_zero_with_weights_by_scores_is_for_sweeps_only(files: dict[str, Path]) -> None:
    changes = ["regulariser.alpha=0"]

    with pytest.raises(ConfigError, match=r"has no effect with regulariser\.alpha = 0"):
        read_recipe(files["scores"], changes)
    plain = read_recipe(files["scores"], changes, in_sweep=True)

    assert plain.regulariser.alpha == 0
    assert recipe_from_dict(recipe_as_dict(plain), "run", in_sweep=True) == plain


def test_several_keys_without_an_effect_are_listed_in_the_order_of_the_tables(
    files: dict[str, Path],
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_recipe(files["text"], ["schedule.factor=0.5", "data.labels=x", "optimiser.name=adamw"])

    _, first, second = str(caught.value).splitlines()
    assert first.startswith('  data.labels = "x": has no effect')
    assert second.startswith("  schedule.factor = 0.5: has no effect")


def test_two_changes_of_a_key_are_refused(files: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"training\.epochs is changed more than once"):
        read_recipe(files["images"], ["training.epochs=2", "training.epochs=3"])


def test_a_key_that_is_not_there_cannot_be_removed(files: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"optimiser\.gradiant_clip cannot be removed"):
        read_recipe(files["images"], ["optimiser.gradiant_clip="])
