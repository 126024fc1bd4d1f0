"""Settings from variables and secret files, and variables that are none."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from api import commands, settings
from api.commands import read_settings, require_usable
from difficulty_service.base.errors import ConfigError


def test_a_variable_that_is_no_setting_is_named_with_the_one_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("DIFFICULTY_")]:
        monkeypatch.delenv(name)  # such as what the tests are told
    monkeypatch.setenv("DIFFICULTY_DATADIR", "/data")
    monkeypatch.setenv("difficulty_max_pixels", "1000")

    found = read_settings()

    warnings = [line for line in capsys.readouterr().err.splitlines() if "no setting" in line]
    assert warnings == [
        "warning: the variable DIFFICULTY_DATADIR is no setting; did you mean "
        "'DIFFICULTY_DATA_DIR'?"
    ]
    assert found.max_pixels == 1000


@pytest.mark.parametrize("name", ["DIFFICULTY_SERVICE_HOST", "DIFFICULTY_QQQQ"])
def test_what_a_cluster_sets_starts_nothing_else_and_prevents_nothing(name: str) -> None:
    (sentence,) = settings.unknown_variables([name, "DIFFICULTY_SHARED", "PATH"])

    assert sentence.startswith(f"the variable {name} is no setting")


def test_a_secret_file_is_a_setting_that_a_variable_overrides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "difficulty_database_url").write_text("sqlite:////secret.sqlite\n")
    monkeypatch.setattr(settings, "SECRETS", tmp_path)

    assert read_settings().resolved_database_url.get_secret_value() == "sqlite:////secret.sqlite"

    monkeypatch.setenv("DIFFICULTY_DATABASE_URL", "sqlite:////variable.sqlite")

    assert read_settings().resolved_database_url.get_secret_value() == "sqlite:////variable.sqlite"


def test_a_secret_file_that_is_invalid_is_named_without_its_contents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "difficulty_port").write_text("s3cret")
    monkeypatch.setattr(settings, "SECRETS", tmp_path)

    with pytest.raises(ConfigError, match="DIFFICULTY_PORT") as caught:
        read_settings()

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("ROOTS", "photos", "DIFFICULTY_ROOTS is no JSON; write it as DIFFICULTY_ROOTS='{"),
        ("ALLOWED_HOSTS", "a.org", "DIFFICULTY_ALLOWED_HOSTS is no JSON; write it as"),
        ("ROOTS", '{"photos": "/nowhere/photos"}', "'photos' is '/nowhere/photos', which is no fo"),
        ("DEVICE", "gpu", "there is no device 'gpu'; expected all, auto, cpu, cuda, cuda:1 or m"),
        ("DEFAULT_BACKBONE", "clip-vit-b61", "unknown backbone 'clip-vit-b61'; did you mean clip"),
    ],
)
@pytest.mark.parametrize("command", [commands.serve, commands.worker])
def test_a_service_that_could_run_no_job_does_not_start(
    command: Callable[[], None],
    variable: str,
    value: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("DIFFICULTY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv(f"DIFFICULTY_{variable}", value)

    with pytest.raises(ConfigError) as caught:
        command()

    assert f"DIFFICULTY_{variable}" in str(caught.value)
    assert expected in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_a_root_at_an_address_and_a_backbone_of_a_library_are_left_to_their_jobs(
    tmp_path: Path,
) -> None:
    roots = {"bucket": "s3://photos", "here": str(tmp_path)}

    commands.require_usable(
        settings.Settings(roots=roots, device="cuda:1", default_backbone="timm:resnet18.a1_in1k")
    )


@pytest.mark.parametrize(("device", "expected"), [("all", "cuda"), ("cuda:1", "cuda:1")])
def test_single_samples_are_encoded_on_one_gpu(device: str, expected: str) -> None:
    found = read_settings(device=device)

    require_usable(found)

    assert found.machine.device == device
    assert found.sample_device == expected
