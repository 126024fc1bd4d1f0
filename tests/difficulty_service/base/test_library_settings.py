"""However a process starts, libraries are configured before PyTorch is looked for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from difficulty_service.base.process_setup import LIBRARY_SETTINGS, configure_libraries

SITE = """
import json, os, sys

class Witness:
    "Writes the environment down when torch is looked for, and ends the process."

    def find_spec(self, name, *_):
        if name == "torch":
            with open(os.environ["WITNESS"], "a") as file:
                print(json.dumps([os.getpid(), dict(os.environ)]), file=file)
            os._exit(7)

sys.meta_path.insert(0, Witness())
"""

SCRIPT = "import sys; from difficulty_service.cli import main; sys.exit(main())"
NOTEBOOK = "import difficulty_service as ds; import torch"
CHILD = """
from difficulty_service.base.apart import Apart, ProcessEnded

def load():
    import torch

if __name__ == "__main__":
    try:
        Apart(load).call()
    except ProcessEnded:
        pass
"""
WORKER = """
from api.settings import Settings
from api.worker.job_process import _run_jobs
from difficulty_service.base.apart import start_process

if __name__ == "__main__":
    start_process(_run_jobs, [], Settings()).join()
"""

WAYS = {
    "the command": ["-c", SCRIPT, "score", "photos", "--out", "scores.parquet"],
    "the module": ["-m", "difficulty_service", "--version"],
    "the trainer": ["-c", "import trainer; trainer.train"],
    "a module of the trainer": ["-c", "import trainer.losses.focal"],
    "a module of the service": ["-c", "import api.worker.job_child"],
    "a notebook": ["-c", NOTEBOOK],
}
"""Words for Python, by what starts."""


def seen_by(folder: Path, *words: str, **variables: str) -> list[dict[str, str]]:
    """Environments in which processes have looked for torch."""
    (folder / "sitecustomize.py").write_text(SITE)
    witness = folder / "witness"
    kept = {name: value for name, value in os.environ.items() if name not in LIBRARY_SETTINGS}
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    environment = kept | {"PYTHONPATH": path, "WITNESS": str(witness)} | variables
    subprocess.run(  # noqa: S603 - our own
        [sys.executable, *words], env=environment, cwd=folder, check=False
    )
    return [json.loads(line)[1] for line in witness.read_text().splitlines()]


@pytest.mark.parametrize("words", WAYS.values(), ids=WAYS)
def test_every_way_to_start_configures_the_threads_before_torch_is_loaded(
    tmp_path: Path, words: list[str]
) -> None:
    (environment,) = seen_by(tmp_path, *words)

    assert environment.items() >= LIBRARY_SETTINGS.items()


@pytest.mark.slow
@pytest.mark.parametrize("script", [CHILD, WORKER], ids=["a child", "a child of a worker"])
def test_children_have_the_settings_of_their_parents(tmp_path: Path, script: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(script)

    (environment,) = seen_by(tmp_path, str(program))

    assert environment.items() >= LIBRARY_SETTINGS.items()


def test_settings_of_the_user_are_kept(tmp_path: Path) -> None:
    (environment,) = seen_by(tmp_path, "-c", NOTEBOOK, OMP_WAIT_POLICY="ACTIVE")

    assert environment["OMP_WAIT_POLICY"] == "ACTIVE"


def test_threads_are_limited_where_a_quota_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from difficulty_service.base import process_setup

    monkeypatch.setattr(process_setup, "cpu_quota", lambda: 2.5)
    monkeypatch.setattr(process_setup, "num_workers", lambda: 3)
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    monkeypatch.delenv("OMP_NUM_THREADS")

    configure_libraries()

    assert os.environ["OMP_NUM_THREADS"] == "3"

    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    configure_libraries()

    assert os.environ["OMP_NUM_THREADS"] == "8"


def test_the_processes_of_the_tests_are_configured_too() -> None:
    assert os.environ.items() >= LIBRARY_SETTINGS.items()


def test_onnx_runtime_keeps_and_reports_nothing_of_its_use(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in LIBRARY_SETTINGS}
    environment = {**kept, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    lines = "import difficulty_service, onnxruntime"

    subprocess.run([sys.executable, "-c", lines], env=environment, check=True)  # noqa: S603

    assert list(tmp_path.iterdir()) == []
