"""Writes the table of the campaigns in docs/security.md from their counts.

Run: make campaign, or after it: python docs/campaign.py
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from docs.marked_parts import with_parts

PAGE = Path(__file__).with_name("security.md")
COUNTS = Path(__file__).with_name("security") / "campaign.csv"

FAULTS = {
    "kill_worker": "SIGKILL to a worker with a job",
    "kill_job_process": "SIGKILL to the process of a job",
    "kill_server": "SIGKILL to the server while jobs are submitted",
    "pause_worker": "SIGSTOP to a worker, past its lease",
    "pause_worker_and_job": "SIGSTOP to a worker and the process of its job",
    "pause_job_process": "SIGSTOP to the process of a job",
    "pause_server": "SIGSTOP to the server",
    "fill_disk": "disk full for a second",
    "restart_database": "restart of the database",
}
OUTCOMES = {
    "jobs": "jobs",
    "attempts": "attempts at them",
    "lost": "lost, or failed",
    "doubled": "doubled",
    "stuck": "stuck",
    "wrong": "scores that differ in a byte",
    "left": "files left behind",
}
PROCESSES = {"forked": "forked processes", "new": "new interpreters"}


def page() -> str:
    """The page with the table of the present counts."""
    with COUNTS.open(newline="") as file:
        return with_parts(PAGE, "campaign.py", {"campaign": table(list(csv.DictReader(file)))})


def table(campaigns: Sequence[Mapping[str, str]]) -> str:
    """One column for each campaign."""
    heads = [f"{each['database']}, {PROCESSES[each['processes']]}" for each in campaigns]
    rows = [
        f"| {' | '.join([words, *(f'{int(each[name]):,}' for each in campaigns)])} |"
        for name, words in (FAULTS | OUTCOMES).items()
    ]
    machines = " / ".join(dict.fromkeys(each["machine"] for each in campaigns))
    head = f"| {' | '.join(['', *heads])} |"
    return "\n".join(
        [head, f"| --- |{' ---: |' * len(campaigns)}", *rows, "", f"On {machines}.", ""]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
