"""A process with pretended GPUs for each module of tests, which is itself without any."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

Call = Callable[..., Any]
FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
NAME = "libcuda.so.1"


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that answers PyTorch in place of CUDA."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc builds the pretended driver")
    if torch.version.cuda is None:
        pytest.skip("this PyTorch is built without CUDA")
    if not sys.platform.startswith("linux"):
        pytest.skip("the pretended driver is preloaded, as on Linux")
    library = tmp_path_factory.mktemp("driver") / NAME
    options = ["-shared", "-fPIC", f"-Wl,-soname,{NAME}", "-o", str(library)]
    subprocess.run([compiler, *options, str(FOLDER / "driver.c")], check=True)  # noqa: S603
    return library


@pytest.fixture(scope="module")
def on_gpus(driver: Path) -> Iterator[Call]:
    """Calls a function, by "module:name" and with values of JSON, in a process with two GPUs."""
    environment = {**os.environ, "LD_PRELOAD": str(driver), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "tests.pretend.child", str(driver)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def call(name: str, *arguments: object) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps([name, arguments]), file=process.stdin, flush=True)
        line = process.stdout.readline()
        assert line, f"the process with pretended GPUs ended with {process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    with process:
        yield call
