"""Files of a run, written and read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from difficulty_service.base.checksums import load_checked
from difficulty_service.base.errors import TrainingError
from tests.formulas import FORMULAS, cells_that_run
from trainer.run_folder import (
    read_inputs,
    read_json,
    read_run,
    seed_folder,
    seed_folders,
    write_csv,
    write_history,
    write_inputs,
    write_json,
    write_run,
)
from trainer.samples import InputSpec


def test_folders_of_seeds_are_ordered_by_number(tmp_path: Path) -> None:
    for seed in (10, 9, 2):
        write_json(seed_folder(tmp_path, seed) / "recipe.json", {})
    (tmp_path / "seed-3").mkdir()

    assert [folder.name for folder in seed_folders(tmp_path)] == ["seed-2", "seed-9", "seed-10"]


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="holds no run"):
        seed_folders(tmp_path)


def test_no_spreadsheet_runs_a_table_of_runs(tmp_path: Path) -> None:
    write_csv(tmp_path / "table.csv", [{"run": name, "nll": -1.5} for name in FORMULAS])

    text = (tmp_path / "table.csv").read_bytes().decode()
    assert cells_that_run(text) == []
    assert text.startswith("run,nll\n'=1+1,-1.5\n'+1+1,-1.5\n")


def test_json_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_json(tmp_path / "new" / "a.json", {"b": [1, 2.5, None]})

    assert read_json(tmp_path / "new" / "a.json") == {"b": [1, 2.5, None]}


def test_the_description_of_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_run(tmp_path, {"seed": 3, "recipe": {"name": "mine"}})

    assert read_run(tmp_path) == {"seed": 3, "recipe": {"name": "mine"}}


@pytest.mark.parametrize("version", [None, 0, 2])
def test_a_run_of_another_version_is_refused_by_name(tmp_path: Path, version: int | None) -> None:
    write_json(tmp_path / "recipe.json", {"version": version, "seed": 3})

    with pytest.raises(
        TrainingError,
        match=rf"recipe\.json has version {version} of runs, but .* reads 1; train again",
    ):
        read_run(tmp_path)


def test_numbers_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"b": float("nan")})

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is missing"),
        ('{"a": ', "is damaged"),
        ("[1]", r"is damaged \(it holds list, not an object\)"),
    ],
)
def test_json_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "a.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(TrainingError, match=rf"a\.json {message}"):
        read_json(path)


def test_a_history_has_a_line_per_epoch(tmp_path: Path) -> None:
    write_history(tmp_path / "history.jsonl", [{"epoch": 1}, {"epoch": 2}])

    assert (tmp_path / "history.jsonl").read_text() == '{"epoch": 1}\n{"epoch": 2}\n'


@pytest.mark.parametrize(
    "spec",
    [
        InputSpec((3, 8, 8), torch.tensor([0.1, 120.7, 3]), torch.tensor([1 / 3, 2, 60.2])),
        InputSpec((100,), vocabulary=("", "the", "müde")),
    ],
    ids=["images", "texts"],
)
def test_inputs_are_read_as_they_were_written(tmp_path: Path, spec: InputSpec) -> None:
    write_inputs(tmp_path / "inputs.json", spec, ("bird", "cat"))

    read, names = read_inputs(tmp_path / "inputs.json")

    assert (read.shape, read.vocabulary, names) == (spec.shape, spec.vocabulary, ("bird", "cat"))
    for value, expected in ((read.mean, spec.mean), (read.std, spec.std)):
        assert (value is None) == (expected is None)
        assert value is None or expected is None or torch.equal(value, expected)


def test_damaged_inputs_are_named(tmp_path: Path) -> None:
    write_json(tmp_path / "inputs.json", {"shape": [6]})

    with pytest.raises(TrainingError, match=r"inputs\.json is damaged"):
        read_inputs(tmp_path / "inputs.json")


@pytest.mark.parametrize(
    "spec",
    [
        InputSpec((3, 32, 48), torch.tensor([0.1, 1 / 3, 255.0]), torch.tensor([1e-7, 2.0, 3.0])),
        InputSpec((2,), torch.tensor([-1e-30, 1e30]), torch.tensor([0.0, 1.0])),
        InputSpec((7,), vocabulary=("", "<unknown>", "naïve", '"quoted"', "日本")),
    ],
    ids=["images", "features", "texts"],
)
def test_the_inputs_of_a_model_are_read_as_they_were_written(
    spec: InputSpec, tmp_path: Path
) -> None:
    path = tmp_path / "inputs.json"

    write_inputs(path, spec, ["größer", "other"])
    read, class_names = read_inputs(path)

    assert class_names == ("größer", "other")
    assert (read.shape, read.vocabulary) == (spec.shape, spec.vocabulary)
    for one, other in ((read.mean, spec.mean), (read.std, spec.std)):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.equal(one, other)


@pytest.mark.parametrize(
    "change", [{"mean": "x"}, {"std": {}}, {"shape": None}, {"class_names": 3}, {"vocabulary": 1}]
)
def test_an_invalid_file_of_inputs_is_named(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "inputs.json"
    write_inputs(path, InputSpec((2,), torch.zeros(2), torch.ones(2)), ("bird", "cat", "dog"))
    path.write_text(json.dumps(load_checked(path.read_text()) | change))

    with pytest.raises(TrainingError, match=r"inputs\.json is damaged .*; train again"):
        read_inputs(path)


def test_missing_inputs_are_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"inputs\.json is missing; .*resume=True"):
        read_inputs(tmp_path / "inputs.json")
