"""The compose files fit the image, the settings and the command line."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch.distributed.run import get_args_parser

from api.jobs.queue import record_heartbeat
from api.settings import Settings
from api.storage.database import connect, migrate
from tests.command_options import options_by_command

DOCKER = Path(__file__).resolve().parents[2] / "docker"
OURS = ("api", "worker", "worker-2")
WORKERS = ("worker", "worker-2")
ONE_OFF = ("precompute", "trainer", "distributed-trainer")


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def gpu() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.gpu.yaml").read_text())


@pytest.fixture(params=["base", "gpu"])
def services(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    return request.getfixturevalue(request.param)["services"]


def test_every_variable_of_ours_is_a_setting(services: dict[str, dict[str, Any]]) -> None:
    names = {name for each in services.values() for name in each.get("environment", {})}
    ours = {name.removeprefix("DIFFICULTY_").lower() for name in names if "DIFFICULTY_" in name}

    assert ours <= set(Settings.model_fields)


def test_every_service_of_the_base_is_hardened_and_starts_again(base: dict[str, Any]) -> None:
    for name, service in base["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped", name


def test_every_container_has_limits_of_memory_and_processes(
    base: dict[str, Any], gpu: dict[str, Any]
) -> None:
    one_off = {name: gpu["services"][name] for name in ONE_OFF}

    for name, service in {**base["services"], **one_off}.items():
        assert service["pids_limit"] > 0, name
        assert service["mem_limit"], name


def test_one_off_commands_are_hardened_and_behind_a_profile(gpu: dict[str, Any]) -> None:
    for name in ONE_OFF:
        service = gpu["services"][name]
        assert service["profiles"] == [name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_ours_wait_for_a_healthy_database(base: dict[str, Any]) -> None:
    for name in OURS:
        waits_for = base["services"][name]["depends_on"]
        assert waits_for["database"]["condition"] == "service_healthy"
    assert "healthcheck" in base["services"]["database"]
    assert "healthcheck" in base["services"]["worker"]


@pytest.mark.slow
def test_a_worker_is_healthy_once_the_database_has_heard_of_it(
    base: dict[str, Any], tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path)
    engine = connect(settings.resolved_database_url.get_secret_value())
    migrate(engine)
    _, _, *program = base["services"]["worker"]["healthcheck"]["test"]
    command = [sys.executable, *program]
    environment = {**os.environ, "DIFFICULTY_DATA_DIR": str(tmp_path)}

    before = subprocess.run(command, env=environment, check=False)  # noqa: S603 - our own program
    record_heartbeat(engine, f"{socket.gethostname()[:60]}-7-ab", "cpu", job=None, images=0)
    after = subprocess.run(command, env=environment, check=False)  # noqa: S603 - our own program

    assert (before.returncode, after.returncode) == (1, 0)


def test_no_secret_has_a_default(services: dict[str, dict[str, Any]]) -> None:
    text = yaml.safe_dump(services)

    assert re.findall(r"\$\{\w*PASSWORD\w*(?!\w*:\?)[^}]*\}", text) == []
    assert re.search(r"^POSTGRES_PASSWORD=$", (DOCKER / "example.env").read_text(), re.MULTILINE)


def test_only_this_machine_reaches_the_ports(base: dict[str, Any]) -> None:
    ports = [port for each in base["services"].values() for port in each.get("ports", [])]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_proxy_alone_is_reached_and_the_service_trusts_its_network_alone(
    base: dict[str, Any],
) -> None:
    services = base["services"]
    subnet = base["networks"]["front"]["ipam"]["config"][0]["subnet"]
    trusted = services["api"]["environment"]["DIFFICULTY_TRUSTED_PROXIES"]

    assert [name for name, each in services.items() if "ports" in each] == ["proxy"]
    assert {name for name, each in services.items() if "front" in each["networks"]} == {
        *("api", "proxy")
    }
    assert set(services["proxy"]["networks"]) & set(services["api"]["networks"]) == {"front"}
    assert trusted == f'["{subnet}"]'


def test_files_of_this_folder_that_are_mounted_exist(base: dict[str, Any]) -> None:
    volumes = [each for service in base["services"].values() for each in service["volumes"]]
    mounted = [each.split(":")[0] for each in volumes if each.startswith("./")]

    assert mounted
    assert all((DOCKER / path).is_file() for path in mounted)


def test_workers_and_single_commands_see_the_gpus_that_a_variable_names(
    gpu: dict[str, Any],
) -> None:
    environments = {name: gpu["services"][name]["environment"] for name in (*WORKERS, *ONE_OFF)}
    lines = (DOCKER / "example.env").read_text().splitlines()
    defaults = dict(line.split("=") for line in lines if "GPUS=" in line)

    seen = {name: each["CUDA_VISIBLE_DEVICES"] for name, each in environments.items()}
    assert seen.pop("worker-2") == f"${{WORKER_2_GPUS:-{defaults['WORKER_2_GPUS']}}}"
    assert set(seen.values()) == {f"${{GPUS:-{defaults['GPUS']}}}"}
    assert {each["CUDA_DEVICE_ORDER"] for each in environments.values()} == {"PCI_BUS_ID"}
    assert defaults["GPUS"] != defaults["WORKER_2_GPUS"]


def find_compose() -> list[str]:
    """The command of Compose: docker's own, as the pages have it, or the separate program."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        ask = [*command, "version", "--short"]
        asked = subprocess.run(ask, capture_output=True, text=True, check=False)  # noqa: S603
        # The first Compose, in Python, does not know what the files say.
        if asked.returncode == 0 and not asked.stdout.startswith("1."):
            return command
    pytest.skip("Compose is not installed")


@pytest.mark.parametrize(
    ("lines", "first", "second"),
    [
        ("", "0", "1"),
        ("GPUS=\nWORKER_2_GPUS=\n", "0", "1"),
        ("GPUS=0,1,2\nWORKER_2_GPUS=3,4\n", "0,1,2", "3,4"),
        ("GPUS=MIG-a\nWORKER_2_GPUS=GPU-b\n", "MIG-a", "GPU-b"),
    ],
)
def test_compose_reads_both_files_with_the_gpus_that_are_named(
    lines: str, first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GPUS", "WORKER_2_GPUS"):
        monkeypatch.delenv(name, raising=False)
    variables = tmp_path / "env"
    variables.write_text(f"POSTGRES_PASSWORD=secret\nDATASETS={tmp_path}\n{lines}")
    files = [f"--file={DOCKER / name}" for name in ("compose.yaml", "compose.gpu.yaml")]
    profiles = [f"--profile={name}" for name in ("two-workers", *ONE_OFF)]
    command = [*find_compose(), f"--env-file={variables}", *files, *profiles, "config"]

    done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603 - our own command

    services = yaml.safe_load(done.stdout)["services"]
    for name in (*WORKERS, *ONE_OFF):
        gpus = services[name]["environment"]["CUDA_VISIBLE_DEVICES"]
        assert gpus == (second if name == "worker-2" else first)
        assert services[name]["read_only"] is True
        (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device["driver"] == "nvidia"
    assert services["worker"]["environment"]["DIFFICULTY_DEVICE"] == "all"
    assert services["worker"]["environment"]["PGPASSWORD"] == "secret"


def test_gpus_are_reserved_for_what_may_use_them(gpu: dict[str, Any]) -> None:
    for name in (*WORKERS, *ONE_OFF):
        (device,) = gpu["services"][name]["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "capabilities": ["gpu"], "count": "all"}, name
        assert gpu["services"][name]["shm_size"] == "8g", name  # for processes that decode


def test_what_runs_by_the_gpu_file_ends_where_no_gpu_works(gpu: dict[str, Any]) -> None:
    for name in WORKERS:
        assert gpu["services"][name]["environment"]["DIFFICULTY_DEVICE"] == "all"
    assert gpu["services"]["precompute"]["command"][-2:] == ["--device", "all"]
    # That it trains on the CPU where nothing is said would be seen late.
    assert gpu["services"]["trainer"]["command"][-2:] == ["--device", "cuda"]


def test_the_distributed_trainer_trains_by_one_process_on_each_gpu(gpu: dict[str, Any]) -> None:
    service = gpu["services"]["distributed-trainer"]
    launcher, *arguments = [*service["entrypoint"], *service["command"]]

    launch = get_args_parser().parse_args(arguments)

    assert launcher == "torchrun"
    assert (launch.nproc_per_node, launch.standalone) == ("gpu", True)
    assert (launch.module, launch.training_script) == (True, "difficulty_service")
    # torchrun refuses to start without a GPU, and each process is given its own.
    alone = [*launch.training_script_args, "--device", "cuda"]
    assert alone == gpu["services"]["trainer"]["command"]


def test_weights_behind_a_gate_can_be_downloaded_everywhere(
    base: dict[str, Any], gpu: dict[str, Any]
) -> None:
    downloading = [base["services"][name] for name in OURS]
    downloading += [gpu["services"][name] for name in ONE_OFF]

    tokens = {each["environment"]["HF_TOKEN"] for each in downloading}
    assert tokens == {"${HF_TOKEN:-}"}


def test_what_training_compiles_can_be_loaded(gpu: dict[str, Any]) -> None:
    for name in ("trainer", "distributed-trainer"):
        (temporary,) = gpu["services"][name]["tmpfs"]
        assert "exec" in temporary.split(",")


def test_every_command_exists_with_its_options(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        if "command" in service:
            name, *rest = service["command"]
            assert {part for part in rest if part.startswith("--")} <= options_by_command()[name]


def test_every_mounted_volume_is_declared(base: dict[str, Any], gpu: dict[str, Any]) -> None:
    declared = {*base["volumes"], *gpu["volumes"]}
    mounted = {
        volume.split(":")[0]
        for file in (base, gpu)
        for service in file["services"].values()
        for volume in service.get("volumes", [])
        if not volume.startswith(("$", "./"))
    }

    assert mounted == declared
