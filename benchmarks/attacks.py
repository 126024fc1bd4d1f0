"""How soon /healthz answers while clients attack the service.

Run: python -m benchmarks.attacks [--seconds 10]

The server runs as `difficulty serve` starts it, with API keys; each attack has a key of its own and
runs in a process of its own. The attackers share the cores with the server, so they have a low
priority (`nice`) and send no more than the attack needs: attacks by slowness take next to none of a
core. /healthz is asked on a new connection every time, as the probes of containers and proxies do,
from one of the addresses of the attackers. The table gives the core time of the server and of its
attackers, which depends less on what else the machine does than the milliseconds do.
"""

import argparse
import http.client
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks import attackers
from benchmarks.attackers import Address, Attack
from benchmarks.machine import machine
from benchmarks.running import Service, core_seconds, running_service

MOST_MILLISECONDS = 20.0
ASK_EVERY = 0.01  # seconds
LIST_EVERY = 0.2  # seconds
SLOW, MANY, ADDRESSES = 300, 1500, 64
FEW_DESCRIPTORS = 300
CLIENTS = 32
WITH_KEY = attackers.LONG
WITHOUT_KEY = attackers.LONG + b"\r\n"

ATTACKS: dict[str, Attack] = {
    "none": attackers.nothing,
    "endless headers": attackers.endless(attackers.GET, b"X-A: 1\r\n" * 8000),
    "one endless header": attackers.endless(attackers.GET + b"X-A: ", b"a" * attackers.PIECE),
    "endless trailers": attackers.endless(attackers.CHUNKED + b"0\r\n", b"X-A: 1\r\n" * 8000),
    "500 new connections a second": attackers.flood,
    f"{SLOW} slow heads": attackers.slow(attackers.GET, SLOW),
    f"{SLOW} slow bodies of a key": attackers.slow(WITH_KEY, SLOW, has_key=True),
    f"{MANY:,} slow heads, {ADDRESSES} addresses": attackers.slow(attackers.GET, MANY, ADDRESSES),
    f"{MANY:,} slow bodies, {ADDRESSES} addresses": attackers.slow(WITHOUT_KEY, MANY, ADDRESSES),
    f"{MANY:,} slow bodies of a key, {ADDRESSES} addresses": attackers.slow(
        WITH_KEY, MANY, ADDRESSES, has_key=True
    ),
    "100 that take no answer": attackers.never_read,
    "event streams of a key": attackers.event_streams,
    "compressed Arrow bodies of a key": attackers.burst(4, attackers.compressed_arrow(), 0.1),
    "Parquet uploads that repeat an image": attackers.upload_dictionaries,
    "thumbnails in a burst by a key": attackers.burst(CLIENTS, attackers.thumbnail),
    "scorings in a burst by a key": attackers.burst(CLIENTS, attackers.scoring, 0.1),
}
WITH_FEW_DESCRIPTORS: dict[str, Attack] = {
    f"no descriptors left, of {FEW_DESCRIPTORS}": attackers.slow(attackers.GET, MANY, ADDRESSES),
}


@dataclass
class Measured:
    """What was measured during an attack.

    Attributes:
        health: Milliseconds of /healthz.
        lists: Milliseconds of the jobs of another key.
        server: Share of a core that the server took.
        attacker: Share of a core that the attackers took.
        descriptors: Open descriptors of the server before the end of the attack.
    """

    health: list[float] = field(default_factory=list)
    lists: list[float] = field(default_factory=list)
    server: float = 0.0
    attacker: float = 0.0
    descriptors: int = 0

    def row(self, name: str) -> str:
        """A row of the table."""
        p50, p99 = np.percentile(self.health, [50, 99])
        return (
            f"| {name} | {p50:.1f} | {p99:.1f} | {max(self.health):.0f} | {max(self.lists):.0f} "
            f"| {self.server:.2f} | {self.attacker:.2f} | {self.descriptors} |"
        )


HEADER = (
    "| attack | p50 | p99 | longest | longest list | server | attacker | descriptors |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def ask(address: Address, path: str, key: str = "") -> float:
    """Milliseconds until a request is answered on a new connection."""
    began = time.perf_counter()
    with closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
        connection.request("GET", path, headers={"X-API-Key": key} if key else {})
        answer = connection.getresponse()
        content = answer.read()
    refused = bool(key) and answer.status == http.client.SERVICE_UNAVAILABLE
    if answer.status != http.client.OK and not refused:
        sys.exit(f"{answer.status}: {content[:500]!r}")
    return 1000 * (time.perf_counter() - began)


def attacked(attack: Attack, service: Service, seconds: float) -> Measured:
    """Asks while the attack begins and goes on."""
    measured, address = Measured(), service.target.address
    own_key, other_key = service.new_key(), service.new_key()
    target = replace(service.target, key=own_key)
    stop = multiprocessing.Event()
    attacker = multiprocessing.Process(target=attackers.run, args=(attack, target, stop))
    server_before, attacker_before = core_seconds(service.process), children_seconds()
    attacker.start()
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        time.sleep(ASK_EVERY)
        measured.health.append(ask(address, "/healthz"))
        if time.monotonic() >= began + LIST_EVERY * (len(measured.lists) + 1) or not measured.lists:
            measured.lists.append(ask(address, "/v1/jobs", other_key))
    duration = time.monotonic() - began
    measured.server = (core_seconds(service.process) - server_before) / duration
    measured.descriptors = service.descriptors()
    stop.set()
    attacker.join()
    measured.attacker = (children_seconds() - attacker_before) / duration
    return measured


def children_seconds() -> float:
    """Core time of the processes that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(
    attacks: dict[str, Attack], seconds: float, descriptors: int | None = None
) -> Sequence[float]:
    """Runs attacks on one server and prints their rows; 99th percentiles of /healthz."""
    slowest = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running_service(Path(folder), descriptors) as service,
    ):
        before = service.peak_memory()
        for name, attack in attacks.items():
            measured = attacked(attack, service, seconds)
            slowest.append(float(np.percentile(measured.health, 99)))
            print(measured.row(name), flush=True)
        print(f"Memory of the server: {before} MiB before, {service.peak_memory()} MiB at most.\n")
    return slowest


def main() -> None:
    """Runs each attack, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    parser.add_argument("--only", default="", help="part of the names of the attacks to run")
    arguments = parser.parse_args()
    multiprocessing.set_start_method("fork")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    print(machine(), f"{os.getloadavg()[0]:.1f} other processes at work")
    print(HEADER)
    slowest: list[float] = []
    for attacks, descriptors in ((ATTACKS, None), (WITH_FEW_DESCRIPTORS, FEW_DESCRIPTORS)):
        chosen = {name: attack for name, attack in attacks.items() if arguments.only in name}
        if chosen:
            slowest += measure(chosen, arguments.seconds, descriptors)
    held = max(slowest, default=0.0) <= MOST_MILLISECONDS
    print(f"{'PASS' if held else 'FAIL'}: {MOST_MILLISECONDS:.0f} ms at the 99th percentile")


if __name__ == "__main__":
    main()
