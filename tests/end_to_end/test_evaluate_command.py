"""`difficulty evaluate` and `difficulty compare` on small runs that are finished."""

import csv
import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from PIL import Image

from trainer.recipes.file import recipe_from_dict
from trainer.run_folder import read_json
from trainer.runs.train import RunCallbacks, RunRequest, run_seed

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
ForkCommand = Callable[..., ForkServerProcess]
WriteFeatures = Callable[..., str]

SEEDS = (0, 1, 2)
COLUMNS = 80
STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def train(
    folder: Path, data: dict[str, str], learning_rate: float = 0.05, *, stop: bool = False
) -> Path:
    """Trains three seeds of a probe; the run has the name of its folder."""
    recipe = recipe_from_dict(
        {
            "name": folder.name,
            "data": {"kind": "features", "validation": 0.2} | data,
            "model": {"name": "probe"},
            "optimiser": {"learning_rate": learning_rate},
            "training": {"epochs": 2, "batch_size": 16, "precision": "fp32"},
        },
        "the recipe of the test",
    )
    callbacks = RunCallbacks(should_stop=lambda: stop)
    for seed in SEEDS:
        run_seed(RunRequest(recipe, seed, folder, "cpu"), callbacks)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, write_features: WriteFeatures) -> dict[str, str]:
    """Training features and test features."""
    folder = tmp_path_factory.mktemp("features")
    return {
        "train": write_features(folder / "train"),
        "test": write_features(folder / "test", num_samples=31, seed=1),
    }


@pytest.fixture(scope="module")
def quick(data: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a good learning rate."""
    return train(tmp_path_factory.mktemp("runs") / "quick", data)


@pytest.fixture(scope="module")
def slow(data: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose learning rate is too small."""
    return train(tmp_path_factory.mktemp("runs") / "slow", data, learning_rate=1e-6)


def only_line(text: str) -> str:
    """The only line of an error."""
    lines = [line for line in text.splitlines() if line]
    assert len(lines) == 1, text
    assert lines[0].startswith("error: ")
    return lines[0]


def lines_on_a_terminal(fork_command: ForkCommand, *arguments: str | Path) -> list[str]:
    """What a command prints on a terminal of COLUMNS, without colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm"}
    process = fork_command(*arguments, environment=environment, output=os.ttyname(theirs))
    parts = []
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while terminal in wait([terminal, process.sentinel]):
            parts.append(terminal.read(1 << 16))
        os.close(theirs)
        # Once all have closed their end, reading is an error.
        with suppress(OSError):
            while part := terminal.read(1 << 16):
                parts.append(part)
    process.join()
    assert process.exitcode == 0
    return STYLE.sub("", b"".join(parts).decode()).splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_tables_fit_a_terminal(command: str, fork_command: ForkCommand, quick: Path) -> None:
    lines = lines_on_a_terminal(fork_command, command, quick, "--resamples", "10")

    numbers = [line for line in lines if re.search(r"(accuracy|NLL|ECE|AURC)\b.* \d+\.\d", line)]
    assert len(numbers) > 8
    assert max(map(len, numbers)) <= COLUMNS
    assert any("accuracy (%) ↑" in line for line in numbers)
    assert not any("…" in line or line.startswith("|") for line in lines)


@pytest.mark.slow
def test_evaluate_prints_a_table_and_keeps_the_numbers(
    difficulty_process: Command, quick: Path
) -> None:
    done = difficulty_process("evaluate", quick, "--device", "cpu")

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "| metric | as trained | temperature by NLL | temperature by ECE "
        "| temperature by adaptive ECE |"
    )
    accuracy = next(line for line in lines if line.startswith("| accuracy (%) ↑ |"))
    assert re.fullmatch(r"\| accuracy \(%\) ↑ (\| \d+\.\d\d ± \d+\.\d\d ){4}\|", accuracy)
    for seed in SEEDS:
        record = read_json(quick / f"seed-{seed}" / "evaluation.json")["the recipe's test data"]
        assert record["raw"]["accuracy_low"] <= record["raw"]["accuracy"]


@pytest.mark.slow
def test_evaluate_shows_intervals_of_the_level_asked_for(difficulty: Command, quick: Path) -> None:
    done = difficulty("evaluate", quick, "--intervals", "0.8", "--resamples", "50")

    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("| AURC, MSP"))
    records = [
        read_json(quick / f"seed-{seed}" / "evaluation.json")["the recipe's test data"]
        for seed in SEEDS
    ]
    low, high = (
        sum(record["raw"][f"aurc_msp_{end}"] for record in records) / 3 for end in ("low", "high")
    )
    assert f" [{1000 * low:.2f}, {1000 * high:.2f}] |" in row
    assert records[0]["intervals"] == {"level": 0.8, "resamples": 50}


@pytest.mark.slow
def test_evaluate_takes_other_data_and_several_ood_datasets(
    difficulty: Command, quick: Path, data: dict[str, str], write_features: WriteFeatures
) -> None:
    other = write_features(quick.parent / "other", num_samples=20, seed=3)

    done = difficulty(
        *("evaluate", quick, "--data", data["test"], "--ood", other, "--ood", data["train"]),
        *("--device", "cpu", "--resamples", "10"),
    )

    assert done.returncode == 0, done.stderr
    assert "| against | by | logits | AUROC (%) ↑ |" in done.stdout
    record = read_json(quick / "seed-1" / "ood.json")
    assert list(record) == [other, data["train"]]
    kept, before = (
        read_json(quick / "seed-1" / name) for name in ("evaluation.json", "metrics.json")
    )
    assert kept[data["test"]]["raw"]["accuracy"] == before["raw"]["accuracy"]


@pytest.mark.long
def test_compare_shows_both_runs_with_intervals_and_writes_its_files(
    difficulty: Command, quick: Path, slow: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.md"

    done = difficulty("compare", quick, slow, "--out", table, "--resamples", 200)

    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith(("| quick", "| slow"))]
    assert [row.split(" | ")[1] for row in rows[:2]] == ["cross_entropy"] * 2
    # The table of losses is followed by one per stage.
    cells = [row.split(" | ")[3] for row in rows[2:4]]
    assert all(re.fullmatch(r"[\d.]+ ± [\d.]+ \[-?[\d.]+, [\d.]+\]", cell) for cell in cells)
    assert table.read_text().strip() in done.stdout
    with (tmp_path / "table.csv").open() as file:
        assert {row["run"] for row in csv.DictReader(file)} == {"quick", "slow"}
    with (tmp_path / "table-differences.csv").open() as file:
        differences = list(csv.DictReader(file))
    nll = next(row for row in differences if (row["stage"], row["metric"]) == ("raw", "nll"))
    assert float(nll["low"]) < float(nll["difference"]) < 0
    assert float(nll["difference"]) < float(nll["high"])
    written = json.loads((tmp_path / "table.json").read_text())
    members = {"metrics", "seeds", "differences", "objectives"}
    assert written.keys() == members | {"with_checksum", "checksum"}
    for name in ("table-reliability.png", "table-risk-coverage.png"):
        with Image.open(tmp_path / name) as picture:
            picture.load()
            assert min(picture.size) > 100
    assert not (tmp_path / "table-weights.png").exists()


def test_compare_writes_chosen_metrics_as_latex(
    difficulty: Command, quick: Path, slow: Path, tmp_path: Path
) -> None:
    options = ("--resamples", 0, "--metrics", "ece, accuracy")

    done = difficulty("compare", quick, slow, "--out", tmp_path / "x.tex", *options)
    wrong = difficulty("compare", quick, *options[:2], "--metrics", "acuracy")

    assert done.returncode == 0, done.stderr
    assert "| run | seeds | ECE (%) ↓ | accuracy (%) ↑ |" in done.stdout
    assert r"run & ECE (\%) $\downarrow$ & accuracy (\%) $\uparrow$ & T \\" in (
        tmp_path / "x.tex"
    ).read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tex"]
    assert wrong.returncode == 1
    assert "choose for example accuracy" in only_line(wrong.stderr)


@pytest.mark.parametrize(
    ("name", "message"), [("x.png", "expected is .md, .tex, .csv, .json"), ("", "is a folder")]
)
def test_compare_refuses_a_file_of_another_kind_before_it_compares(
    difficulty: Command, quick: Path, tmp_path: Path, name: str, message: str
) -> None:
    done = difficulty("compare", quick, "--out", tmp_path / name)

    assert done.returncode == 1
    assert message in only_line(done.stderr)
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_run_is_an_error_of_one_line_and_exit_code_1(
    difficulty_process: Command, tmp_path: Path
) -> None:
    done = difficulty_process("evaluate", tmp_path)

    assert done.returncode == 1
    assert done.stdout == ""
    assert "holds no run" in only_line(done.stderr)
    assert "difficulty train" in done.stderr


@pytest.mark.slow
def test_a_request_that_fails_is_an_error_of_one_line_and_exit_code_1(
    difficulty: Command, quick: Path, data: dict[str, str], tmp_path: Path
) -> None:
    unfinished = train(tmp_path / "unfinished", data, stop=True)
    missing, few = tmp_path / "missing", ("--resamples", 2)
    calls = {
        "resume the training with --resume": ("evaluate", unfinished),
        "none of the 3 seeds": ("compare", quick, unfinished),
        "holds no run": ("compare", quick, missing),
        "each once": ("compare", quick, quick),
        "corruptions need a recipe of images": ("evaluate", quick, *few, "--corruptions"),
        str(missing): ("evaluate", quick, *few, "--data", missing),
        "device 'abacus'": ("evaluate", quick, *few, "--device", "abacus", "--ood", data["train"]),
    }

    for message, arguments in calls.items():
        done = difficulty(*arguments)

        assert done.returncode == 1, message
        assert message in only_line(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate",), "RUN"),
        (("compare",), "RUN"),
        (("evaluate", "run", "--split", "test"), "--data"),
        (("evaluate", "run", "--label-column", "label"), "--data"),
        (("evaluate", "run", "--ood-split", "test"), "--ood"),
        (("evaluate", "run", "--mahalanobis"), "--ood"),
        (("evaluate", "run", "--ood", "a", "--ood", "b", "--ood-name", "c"), "--ood-name"),
        (("evaluate", "run", "--intervals", "95"), "--intervals"),
        (("evaluate", "run", "--intervals", "nan"), "--intervals"),
        (("evaluate", "run", "--resamples", "0"), "--resamples"),
        (("evaluate", "run", "--no-such-option"), "--no-such-option"),
        (("compare", "run", "--out"), "--out"),
    ],
)
def test_a_wrong_option_is_named_and_exit_code_2(
    difficulty: Command, arguments: tuple[str, ...], message: str
) -> None:
    done = difficulty(*arguments)

    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (
            "evaluate",
            (
                "--data",
                "--split",
                "--label-column",
                "--ood",
                "--ood-split",
                "--ood-column",
                "--ood-name",
                "--mahalanobis",
                "--corruptions",
                "--write-scores",
                "--device",
            ),
        ),
        ("compare", ("--out", "--metrics", "--intervals", "--resamples")),
        (
            "sweep",
            ("--over", "--scores", "--out", "--set", "--resume", "--dry-run", "--intervals"),
        ),
    ],
)
def test_the_help_names_the_options(
    difficulty: Command, monkeypatch: pytest.MonkeyPatch, name: str, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    done = difficulty(name, "--help")

    assert done.returncode == 0
    assert [option for option in options if option not in done.stdout] == []


def test_options_of_corruptions_alone_are_refused(difficulty: Command, quick: Path) -> None:
    for option in (("--corruption-kinds", "fog"), ("--corruption-data", quick)):
        done = difficulty("evaluate", quick, *option)

        assert done.returncode == 2
        assert "belong to --corruptions; add it" in done.stderr
