"""What is carried to a machine without a network: packages that fit, without files nobody loads."""

import zipfile
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest

from benchmarks.gpu import carried
from benchmarks.gpu.carried import (
    run_measurements,
    take_fitting,
    used_files,
    write_archive,
    write_metadata,
)


def test_packages_are_taken_in_their_order_as_far_as_they_fit(tmp_path: Path) -> None:
    archives = [tmp_path / name for name in ("a", "big", "b", "c")]
    for archive, size in zip(archives, (5, 9, 3, 2), strict=True):
        archive.write_bytes(bytes(size))

    taken = [archive.name for archive, _, fits in take_fitting(archives, 9) if fits]

    assert taken == sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_libraries_are_carried_once_and_what_nobody_loads_not_at_all(tmp_path: Path) -> None:
    kept = (
        *("pyarrow/__init__.py", "pyarrow/lib.cpython-312-x86_64-linux-gnu.so"),
        *("pyarrow/libarrow.so.2600", "pyarrow/_fs.cpython-312-x86_64-linux-gnu.so"),
        "pyarrow-26.0.1.dist-info/METADATA",
    )
    dropped = (
        *("pyarrow/libarrow.so", "pyarrow/libarrow.so.2600.1.0", "pyarrow/libparquet.so"),
        *("pyarrow/libarrow_flight.so.2600", "pyarrow/tests/test_array.py"),
        *("pyarrow/include/arrow/api.h", "pyarrow/table.pxi"),
    )
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        for name in (*kept, *dropped):
            wheel.writestr(name, name)

    assert used_files(tmp_path / "a.whl") == {name: name.encode() for name in kept}


@pytest.mark.slow
def test_measurements_find_the_carried_packages_and_take_their_options(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_archive(tmp_path / "one.tar.xz", {"carried_package/__init__.py": b""})
    write_archive(tmp_path / "two.tar.xz", {"sitecustomize.py": PROGRAM})

    status = run_measurements(tmp_path, ["--help"])

    output = capfd.readouterr().out
    assert status == 0
    assert "found the package" in output
    assert "--minutes" in output


PROGRAM = b"import carried_package; print('found the package')"


def test_what_is_too_large_to_be_carried_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "NEEDED_THERE", ("torch", "no_such_package"))

    with pytest.raises(SystemExit, match="has no no_such_package: too large to be carried"):
        run_measurements(tmp_path, [])


def test_the_project_is_there_as_if_it_were_installed(tmp_path: Path) -> None:
    write_metadata(tmp_path)

    (written,) = distributions(path=[str(tmp_path)])
    installed = distribution("difficulty-service")
    assert (written.name, written.version) == (installed.name, installed.version)
    assert {*written.entry_points} == {*installed.entry_points}


def test_the_project_counts_towards_the_size() -> None:
    assert carried.size_of_project() > (carried.ROOT / "benchmarks/gpu/carried.py").stat().st_size
