"""Other packages add a scorer, a backbone, a kind of dataset and an export, and each is everywhere.

The package is installed for real, in a folder on the path of new processes.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.scores.file import read_scores

ROOT = Path(__file__).resolve().parent.parent

ENTRY_POINTS = """
[difficulty.scorers]
largest = plugged_difficulty:LARGEST
label = plugged_difficulty:LARGEST
idle = plugged_difficulty:IDLE

[difficulty.datasets]
squares = plugged_difficulty:open_squares

[difficulty.exports]
ids = plugged_difficulty:IDS

[difficulty.backbones]
mean = plugged_difficulty:load_mean
"""

DECLARATIONS = '''
"""A package that extends the service; nothing heavy is imported here."""

from difficulty_service.base.plugins import Export, Scorer

LARGEST = Scorer("largest", "largest feature of a sample", compute="plugged_work:largest_feature")
IDLE = Scorer("idle", "what nothing computes")
IDS = Export("ids", "the ids alone, one a line", "plugged_work:write_ids")


def open_squares(number):
    """Squares of two colours."""
    from plugged_work import Squares

    return Squares(int(number))


def load_mean(size):
    """Mean colour of squares."""
    from plugged_work import make_mean

    return make_mean(int(size))
'''

WORK = '''
"""What the declarations stand for."""

import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.torch import save_file

from difficulty_service.cleaning.exports.samples import Exported


def largest_feature(samples):
    assert samples.labels.shape == (len(samples.features),)
    assert samples.num_classes == 2
    return samples.features.double().amax(dim=1)


def write_ids(scores, path):
    path.write_text("\\n".join(scores.column("sample_id").to_pylist()) + "\\n")
    return Exported(instructions=["open it with any editor"])


class Squares:
    class_names = ("dark", "light")

    def __init__(self, number):
        self.sample_ids = [f"square-{index}" for index in range(number)]
        self.labels = [index % 2 for index in range(number)]

    def read_image(self, position):
        generator = np.random.default_rng(position)
        image = generator.integers(0, 128, (16, 16, 3)) + 127 * (position % 2)
        return image.astype(np.uint8)


def make_mean(size):
    weights = Path(tempfile.gettempdir()) / "plugged-mean.safetensors"
    save_file({"nothing": torch.zeros(1)}, weights)
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())
    return SimpleNamespace(
        reference=str(size), network=network, weights=weights, size=size, resize=size,
        interpolation="bicubic", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5),
    )
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package is installed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "plugged_difficulty.py").write_text(DECLARATIONS)
    (folder / "plugged_work.py").write_text(WORK)
    facts = folder / "plugged_difficulty-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: plugged-difficulty\nVersion: 1.0\n"
    )
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def run(installed: Path, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs Python where the package is installed."""
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1"},
        check=False,
        capture_output=True,
        text=True,
    )


def difficulty(
    installed: Path, *arguments: object, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    done = run(installed, "-m", "difficulty_service", *map(str, arguments), cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done


CALLS = """
import json, sys
from difficulty_service.cli import create_app

for words in json.loads(sys.argv[1]):
    create_app()(words)
"""


def difficulty_calls(installed: Path, *calls: tuple[object, ...]) -> str:
    """Output of several calls of the command by one interpreter."""
    words = json.dumps([[str(each) for each in call] for call in calls])
    done = run(installed, "-c", CALLS, words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def help_of_score(installed: Path) -> subprocess.CompletedProcess[str]:
    return difficulty(installed, "score", "--help")


@pytest.fixture(scope="module")
def scores(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores of a plugged dataset by a plugged backbone and a plugged scorer."""
    out = tmp_path_factory.mktemp("scores") / "scores.parquet"
    options = ("--backbone", "mean:16", "--scorers", "rmd,largest", "--device", "cpu")
    difficulty(installed, "score", "squares:24", "--out", out, *options)
    return out


@pytest.mark.slow
def test_a_dataset_a_backbone_and_a_scorer_of_other_packages_score_together(scores: Path) -> None:
    table = pq.read_table(scores)
    largest = table["largest"].to_numpy()

    assert table["sample_id"].to_pylist()[:2] == ["square-0", "square-1"]
    assert table.schema.field("largest").type == pa.float64()
    assert (
        largest[table["label"].to_numpy() == 1].min()
        > largest[table["label"].to_numpy() == 0].max()
    )
    assert np.isfinite(table["rmd"].to_numpy()).all()


def test_a_plugged_column_is_read_by_those_who_name_it_where_the_package_is_missing(
    scores: Path,
) -> None:
    assert "largest" not in read_scores(scores).table.column_names
    assert read_scores(scores, ["sample_id", "largest"]).table.num_rows == 24


@pytest.mark.slow
def test_an_export_of_another_package_is_offered_and_written(
    installed: Path, scores: Path, tmp_path: Path
) -> None:
    printed = difficulty_calls(
        installed,
        ("export", "--help"),
        ("export", scores, "--to", "ids", "--out", tmp_path / "ids.txt"),
    )

    assert "ids" in printed
    assert "the ids alone, one a line" in " ".join(printed.split())
    assert "open it with any editor" in printed
    assert (tmp_path / "ids.txt").read_text().splitlines()[0] == "square-0"


@pytest.mark.slow
def test_each_is_named_by_the_help_of_the_command_line(
    installed: Path, help_of_score: subprocess.CompletedProcess[str]
) -> None:
    assert "largest" in help_of_score.stdout
    assert "mean:SIZE" in difficulty(installed, "backbones").stdout


@pytest.mark.slow
def test_a_condition_and_a_report_take_the_plugged_column(
    installed: Path, scores: Path, tmp_path: Path
) -> None:
    kept, page = tmp_path / "kept.parquet", tmp_path / "report.html"
    difficulty_calls(
        installed,
        ("clean", scores, "--drop", "largest > 0", "--out", kept),
        ("report", scores, "--compare", "largest", "--out", page),
    )

    assert 0 < pq.read_table(kept).num_rows < 24
    assert "largest" in page.read_text()


EVERYWHERE = """
import json, sys
import numpy as np
from fastapi.testclient import TestClient
from api.app import create_app
from api.settings import Settings
from docs.options import page

roots = {"photos": sys.argv[1]}
settings = Settings(data_dir=sys.argv[1], roots=roots, default_backbone="builtin")
with TestClient(create_app(settings), base_url="http://localhost") as client:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    asked = schemas["JobCreate"]["properties"]["scorers"]["items"]["oneOf"]
    form = client.get("/").text
light = not {"torch", "plugged_work"} & set(sys.modules)

import difficulty_service as ds

features = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
scores = ds.score(features, np.arange(40) % 2, scorers=("rmd", "largest"))
largest = np.asarray(scores["largest"])
print("found", json.dumps({
    "openapi": "largest" in [each["const"] for each in asked],
    "form": 'name="scorers" value="largest"' in form,
    "sentence": "largest feature of a sample" in form,
    "nothing heavy is imported to list them": light,
    "python": np.array_equal(largest, features.max(axis=1).astype(float)),
    "reference": "| `largest` | largest feature of a sample | `largest` |" in page(),
}))
"""


@pytest.mark.slow
def test_python_openapi_the_form_and_the_reference_have_the_scorer(
    installed: Path, tmp_path: Path
) -> None:
    done = run(installed, "-W", "ignore", "-c", EVERYWHERE, str(tmp_path))

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.partition("found ")[2])
    assert all(found.values()), found


def test_a_plug_in_that_takes_the_name_of_a_column_is_left_out_with_a_warning(
    help_of_score: subprocess.CompletedProcess[str],
) -> None:
    warnings = help_of_score.stderr

    assert "label of plugged_difficulty:LARGEST, in difficulty.scorers, is left out" in warnings


def test_a_scorer_that_nothing_computes_is_left_out_with_a_warning(
    help_of_score: subprocess.CompletedProcess[str],
) -> None:
    warnings = help_of_score.stderr

    assert "idle of plugged_difficulty:IDLE, in difficulty.scorers, is left out" in warnings
    assert "idle" not in help_of_score.stdout


@pytest.mark.slow
def test_a_dataset_that_its_package_cannot_read_is_one_clear_error(installed: Path) -> None:
    arguments = ("score", "squares:many", "--out", "s.parquet", "--backbone", "builtin")
    done = run(installed, "-m", "difficulty_service", *arguments)

    assert done.returncode == 1
    assert "plugged_difficulty:open_squares cannot read 'squares:many': ValueError" in done.stderr


NEW_OPTION = '''
    sharpen: bool = False
    """Sharpen images first, as an unsharp mask does."""

'''

OPTION_EVERYWHERE = """
import json, sys
from typing import get_type_hints
from fastapi.testclient import TestClient
from api.app import create_app
from api.settings import Settings
from difficulty_service.cli import create_app as create_command
from difficulty_service.interface.keywords import ImageOptions
from docs.options import page

sentence = "Sharpen images first, as an unsharp mask does."
roots = {"photos": sys.argv[1]}
settings = Settings(data_dir=sys.argv[1], roots=roots, default_backbone="builtin")
with TestClient(create_app(settings), base_url="http://localhost") as client:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    option = schemas["JobCreate"]["properties"]["sharpen"]
    form = client.get("/").text
print("found", json.dumps({
    "openapi": option["description"] == sentence and option["default"] is False,
    "form": 'name="sharpen"' in form and sentence in form,
    "python": "sharpen" in get_type_hints(ImageOptions),
    "reference": f"| `sharpen` | off | {sentence} |" in page(),
}))
create_command()(["score", "--help"])
"""


@pytest.mark.slow
def test_an_option_that_is_written_in_one_file_is_everywhere(tmp_path: Path) -> None:
    for package in ("difficulty_service", "api", "trainer", "docs"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.png"))
    options = tmp_path / "difficulty_service" / "settings" / "options.py"
    start = "class EncodingOptions(Options):\n"
    before, _, after = options.read_text().partition(start)
    docstring, _, fields = after.partition("\n\n")
    options.write_text(f"{before}{start}{docstring}\n{NEW_OPTION}{fields}")
    written = run(tmp_path, "-W", "ignore", "docs/keywords.py", cwd=tmp_path)
    assert written.returncode == 0, written.stderr

    done = run(tmp_path, "-W", "ignore", "-c", OPTION_EVERYWHERE, str(tmp_path), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    found_in, _, shown = done.stdout.partition("found ")[2].partition("\n")
    assert all(json.loads(found_in).values()), found_in
    assert "--sharpen" in shown
    assert "Sharpen images first, as an unsharp mask does." in " ".join(shown.split())
