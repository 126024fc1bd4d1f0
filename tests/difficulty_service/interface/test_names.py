"""`import difficulty_service` is light, and its names are complete and typed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import difficulty_service as ds
from difficulty_service.interface.names import HOMES

USER_CODE = """
import numpy as np
import difficulty_service as ds

scores = ds.score(np.zeros((2, 2)), [0, 1], shrinkage="oas")
reveal_type(scores)
reveal_type(ds.RelativeMahalanobis().fit([[0.0]], [1]).predict([[0.0]]))
reveal_type(ds.backbone("builtin").encode([]))
reveal_type(ds.score_dataset("photos", split="train"))
reveal_type(ds.__version__)
error: ds.errors.DifficultyError
ds.score([[0.0]], [1], shrinkage="lw")
ds.score_dataset("photos", splits="train")
"""


def test_importing_the_package_loads_no_other_package() -> None:
    program = (
        "import json, sys; before = set(sys.modules); import difficulty_service; dir("
        "difficulty_service); print(json.dumps(list(set(sys.modules) - before)))"
    )

    output = subprocess.check_output([sys.executable, "-c", program], text=True)  # noqa: S603

    loaded = {name.partition(".")[0] for name in json.loads(output)}
    assert loaded - sys.stdlib_module_names == {"difficulty_service"}


def test_every_public_name_is_loaded_completed_and_has_a_home() -> None:
    assert set(ds.__all__) == {*HOMES, "errors", "__version__"}
    assert set(ds.__all__) <= set(dir(ds))
    assert all(getattr(ds, name) is getattr(ds, name) for name in ds.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reveiw'"):
        ds.reveiw  # noqa: B018 # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_names_are_typed_for_strict_checkers(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER_CODE)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "user.py"]

    run = subprocess.run(  # noqa: S603
        [*command, "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent"],
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(ds.__file__).parents[1])},
        check=False,
        capture_output=True,
        text=True,
    )

    revealed = [line.partition('"')[2].rpartition('"')[0] for line in run.stdout.splitlines()]
    assert revealed[0] == "difficulty_service.interface.scores.Scores"
    assert revealed[1].startswith("numpy.ndarray")
    assert "float" in revealed[2]
    assert revealed[3:5] == [revealed[0], "str"]
    assert 'Argument "shrinkage" to "score" has incompatible type' in run.stdout
    assert '"splits"' in run.stdout
    assert "Found 2 errors" in run.stdout
