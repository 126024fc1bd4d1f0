"""The command itself, a folder of small photographs, and an encoder of random weights."""

import subprocess
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from difficulty_service.backbones.builtin.network import BuiltinEncoder
from difficulty_service.cli import main
from tests.small_network import SMALL

Command = Callable[..., subprocess.CompletedProcess[str]]
ForkCommand = Callable[..., ForkServerProcess]

CLASSES = ("bird", "cat", "dog")
PHOTOS_PER_CLASS = 200


@pytest.fixture
def difficulty(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Calls the command line in this process, which saves the seconds that torch takes to load."""
    # The command chooses BLAS kernels by this variable; set and deleted, it is put back afterwards.
    monkeypatch.setenv("OPENBLAS_CORETYPE", "")
    monkeypatch.delenv("OPENBLAS_CORETYPE")

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = ["difficulty", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", words)
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())
        captured = capfd.readouterr()
        code = ended.value.code
        return subprocess.CompletedProcess(
            words, code if isinstance(code, int) else 0, captured.out, captured.err
        )

    return call


@pytest.fixture(scope="session")
def difficulty_process(
    fork_command: ForkCommand, tmp_path_factory: pytest.TempPathFactory
) -> Command:
    """Runs the command in a process of its own."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        folder = tmp_path_factory.mktemp("process")
        output, errors = folder / "output", folder / "errors"
        process = fork_command(*arguments, output=output, errors=errors)
        process.join(300)
        return subprocess.CompletedProcess(
            [*arguments], process.exitcode, output.read_text(), errors.read_text()
        )

    return run


@pytest.fixture(scope="session")
def builtin(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The options that choose the built-in network, with random weights."""
    torch.manual_seed(0)
    network = BuiltinEncoder()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    # Statistics of pictures like those below: no feature is always 0, none has no variance.
    network(torch.randn(256, 3, 1, 1) + 0.3 * torch.randn(256, 3, 32, 32))
    path = tmp_path_factory.mktemp("weights") / "encoder.safetensors"
    save_file(network.fold().state_dict(), path)
    return ("--backbone", "builtin", "--weights", str(path), "--device", "cpu")


@pytest.fixture(scope="session")
def network(small_networks: None) -> tuple[str, ...]:  # noqa: ARG001 - it is known
    """The options that choose a network of few features, which are scored in far less time."""
    return ("--backbone", SMALL, "--device", "cpu")


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 200 noisy pictures each."""
    return make_photos(tmp_path_factory.mktemp("data") / "photos", CLASSES, PHOTOS_PER_CLASS)


@pytest.fixture
def few_photos(tmp_path: Path) -> Path:
    """Two classes of ten pictures each, for a test to change."""
    return make_photos(tmp_path / "photos", CLASSES[:2], 10)


@pytest.fixture(scope="session")
def scored(
    tmp_path_factory: pytest.TempPathFactory,
    difficulty_process: Command,
    photos: Path,
    builtin: tuple[str, ...],
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """All photos scored by the command: the folder of its results and its output."""
    folder = tmp_path_factory.mktemp("scored")
    words = ("score", photos, "--out", folder / "scores.parquet", *builtin, "--shard-size", 250)
    done = difficulty_process(*words)
    assert done.returncode == 0, done.stderr
    return folder, done


def make_photos(root: Path, classes: tuple[str, ...], each: int) -> Path:
    generator = np.random.default_rng(7)
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(each):
            height, width = generator.integers(8, 33, size=2)
            level = generator.integers(0, 100, size=3) + 40 * label
            noise = generator.integers(0, 56, size=(height, width, 3))
            picture = Image.fromarray((level + noise).astype(np.uint8))
            picture.save(root / name / f"{number:03d}.png")
    return root
