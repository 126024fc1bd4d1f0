"""Label Studio's server: a project of the exported tasks, as the export says to set it up."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from benchmarks.formats.tools.server import TIMEOUT, answering, free_port, stopping
from benchmarks.formats.tools.trip import DROP, NONE, ToolDecision, Trip, decisions_of

PACKAGE, EXPORT = "label-studio", "labelstudio"
FORMATS = {"JSON": "json", "JSON_MIN": "json", "CSV": "csv", "TSV": "tsv"}

_TOKEN = "0" * 40


class Project:
    """A server of Label Studio that answers."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Token {_TOKEN}"

    def get(self, path: str, **parameters: str | int) -> requests.Response:
        """The answer about a path, whatever it is."""
        return self._session.get(self._address + path, params=parameters, timeout=TIMEOUT)

    def post(self, path: str, body: Any) -> Any:  # noqa: ANN401
        """The JSON that answers a JSON; an error where it is refused."""
        answer = self._session.post(self._address + path, json=body, timeout=TIMEOUT)
        answer.raise_for_status()
        return answer.json()


@contextmanager
def served(folder: Path, variables: Mapping[str, str]) -> Iterator[Project]:
    """A new server with some environment variables, whose data are in a folder."""
    port = free_port()
    words = [Path(sys.executable).with_name("label-studio"), "start", "--no-browser"]
    words += ["--data-dir", folder, "--port", port, "--user-token", _TOKEN]
    words += ["--username", "someone@example.org", "--password", "a-long-password"]
    private = {"COLLECT_ANALYTICS": "0", "LATEST_VERSION_CHECK": "0"}
    command = [*words, "--enable-legacy-api-token"]
    with stopping(command, folder, {**variables, **private}) as process:
        address = f"http://127.0.0.1:{port}"
        answering(f"{address}/health", process)
        yield Project(address)


def trips(folder: Path, own: Path) -> Iterator[Trip]:
    """Imports tasks as the export says, annotates them, and exports the project in each format."""
    exported = folder / "exports" / EXPORT
    tasks = json.loads((exported / "tasks.json").read_text("utf-8"))
    said = " ".join(json.loads((folder / "instructions.json").read_text("utf-8"))[EXPORT])
    variables = dict(re.findall(r"(LABEL_STUDIO_\w+)=(\S+)", said))
    (storage,) = re.findall(r"absolute local path (.+): under", said)
    decisions = decisions_of(folder)
    with served(own, variables) as server:
        config = (exported / "label_config.xml").read_text("utf-8")
        made = server.post("/api/projects", {"title": "Photographs", "label_config": config})
        project = f"/api/projects/{made['id']}"
        server.post(f"{project}/import", tasks)
        server.post("/api/storages/localfiles", {"project": made["id"], "path": storage})
        listed = server.get("/api/tasks", project=made["id"], page_size=10_000, fields="all").json()
        images = sum(_is_image(server, task["data"]["image"]) for task in listed["tasks"])
        first = server.get(f"{project}/next").json()["data"]["sample_id"]
        if first != tasks[0]["data"]["sample_id"]:
            raise ValueError(f"the first task is {first}")
        for task in listed["tasks"]:
            result = _result(decisions[task["data"]["sample_id"]])
            if result:
                server.post(f"/api/tasks/{task['id']}/annotations", {"result": result})
        for form, extension in FORMATS.items():
            path = own / f"{form}.{extension}"
            path.write_bytes(server.get(f"{project}/export", exportType=form).content)
            name = str(path.relative_to(folder))
            yield Trip(EXPORT, form.replace("_", "-"), len(listed["tasks"]), images, name)


def _is_image(server: Project, address: str) -> bool:
    answer = server.get(address)
    return answer.ok and answer.headers["content-type"].startswith("image/")


def _result(decision: ToolDecision) -> list[dict[str, Any]]:
    """What a person chooses: the class, and beside it whether the sample is dropped."""
    chosen = {} if decision.kind == NONE else {"label": decision.label}
    if decision.kind == DROP:
        chosen["mark"] = "drop"
    return [
        {"from_name": name, "to_name": "image", "type": "choices", "value": {"choices": [choice]}}
        for name, choice in chosen.items()
    ]
