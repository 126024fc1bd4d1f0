"""Fails where a version of constraints.txt has a known hole.

Run: python .ci/audit.py [--store]

Asks OSV, the database of open-source advisories, for those of every pinned package; where it does
not answer, reads the ones in .ci/advisories.json, which are as old as the date in them. `--store`
writes what OSV says to that file, and fails where it does not answer.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

FOLDER = Path(__file__).parent
STORED = FOLDER / "advisories.json"
PINS = FOLDER.parent / "constraints.txt"
OSV = os.environ.get("OSV_URL", "https://api.osv.dev")
PATIENCE = 10.0  # seconds for an answer
AT_ONCE = 8
KEPT = ("id", "aliases", "affected")  # of an advisory

Advisory = Mapping[str, Any]  # as OSV's schema has it

ACCEPTED: dict[str, str] = {}
"""Advisories that do not matter here, by id, with the reason."""


def pinned(path: Path) -> dict[str, Version]:
    """The pinned version of each package."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def holes(pins: Mapping[str, Version], advisories: list[Advisory]) -> Iterator[str]:
    """A sentence about each advisory that a pinned version falls under."""
    for advisory in advisories:
        names = {advisory["id"], *advisory.get("aliases", ())}
        if "withdrawn" in advisory or names & ACCEPTED.keys():
            continue
        for affected in advisory["affected"]:
            if affected["package"]["ecosystem"] != "PyPI":
                continue
            name = canonicalize_name(affected["package"]["name"])
            if name in pins and is_affected(pins[name], affected):
                others = ", ".join(sorted(names - {advisory["id"]}))
                yield f"{name} {pins[name]}: {advisory['id']}{others and f' ({others})'}"


def is_affected(version: Version, affected: Mapping[str, Any]) -> bool:
    """Whether a version is among the affected ones, by list or by range."""
    if any(_version(each) == version for each in affected.get("versions", ())):
        return True
    return any(
        _is_within(version, each["events"])
        for each in affected.get("ranges", ())
        if each["type"] == "ECOSYSTEM"
    )


def _is_within(version: Version, events: list[Mapping[str, str]]) -> bool:
    is_open = False
    dated = [(_version(text), kind) for event in events for kind, text in event.items()]
    for at, kind in sorted(dated):
        if kind == "introduced" and version >= at:
            is_open = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            is_open = False
    return is_open


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:  # of another scheme, as very old ones are
        return Version("0")


def ask(names: list[str]) -> list[Advisory]:
    """All advisories of some packages, by OSV.

    Raises:
        httpx2.HTTPError: It does not answer, or not as it should.
    """
    with httpx2.Client(base_url=OSV, timeout=PATIENCE) as client:

        def of_package(name: str) -> list[Advisory]:
            found: list[Advisory] = []
            body: dict[str, Any] = {"package": {"ecosystem": "PyPI", "name": name}}
            while True:
                answer = client.post("/v1/query", json=body).raise_for_status().json()
                found += answer.get("vulns", ())
                if not (token := answer.get("next_page_token")):
                    return found
                body["page_token"] = token

        first = of_package(names[0])  # alone, so that no network is one wait
        with ThreadPoolExecutor(AT_ONCE) as pool:
            rest = list(pool.map(of_package, names[1:]))
    by_id = {each["id"]: each for found in (first, *rest) for each in found}
    return [by_id[each] for each in sorted(by_id)]


def store(advisories: list[Advisory]) -> None:
    """Writes what decides whether a version is affected, one advisory a line."""
    lines = []
    for advisory in advisories:
        affected = [
            {
                name: value
                for name, value in each.items()
                if name in ("package", "ranges", "versions")
            }
            for each in advisory["affected"]
        ]
        for each in affected:
            if any(known["type"] == "ECOSYSTEM" for known in each.get("ranges", ())):
                each.pop("versions", None)  # a list of what the range says
        kept = {name: advisory[name] for name in KEPT if name in advisory}
        lines.append(json.dumps(kept | {"affected": affected}))
    text = ",\n".join(lines)
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    source = "OSV (https://osv.dev): PyPA and GitHub advisory databases, CC BY 4.0"
    head = f'{{"as_of": "{day}",\n"source": {json.dumps(source)},\n"advisories": [\n'
    STORED.write_text(f"{head}{text}\n]}}\n")


def main() -> int:
    """Says what has holes; 1 if anything has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", action="store_true", help="write what OSV says to the file")
    parser.add_argument("--pins", type=Path, default=PINS)
    options = parser.parse_args()
    pins = pinned(options.pins)
    try:
        advisories, source = ask(sorted(pins)), f"{OSV} today"
        if options.store:
            store([each for each in advisories if "withdrawn" not in each])
    except (httpx2.HTTPError, json.JSONDecodeError) as error:
        if options.store:
            print(f"{OSV} does not answer: {error}", file=sys.stderr)
            return 1
        stored = json.loads(STORED.read_text())
        advisories = stored["advisories"]
        source = f"{STORED.name} of {stored['as_of']}, since {OSV} does not answer"
    found = list(holes(pins, advisories))
    for hole in found:
        print(hole)
    print(f"{len(found)} known holes in {len(pins)} pinned packages, by {source}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
