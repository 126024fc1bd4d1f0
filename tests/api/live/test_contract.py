"""Requests generated from the OpenAPI description, valid or not, are answered according to it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.live.running import StartService

EXAMPLES = os.environ.get("DIFFICULTY_CONTRACT_EXAMPLES", "2")

CONFIGURATION = """
[checks]
# A request may be of the right form and name what is not there (422) or does not fit (409), or
# send bytes that are no image, no range or too many.
positive_data_acceptance.expected-statuses = [
    "2xx", "304", "400", "401", "403", "404", "409", "410", "413", "415", "416", "422", "429",
]
# One that is not may be too long to be read at all.
negative_data_rejection.expected-statuses = [
    "400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "431",
    "5xx",
]
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_request_is_answered_otherwise_than_described(
    start_service: StartService, sqlite_url: str, tmp_path: Path
) -> None:
    service = start_service(sqlite_url)
    secret = service.new_key("contract")
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)

    ran = subprocess.run(  # noqa: S603 - our own arguments
        [
            Path(sys.executable).with_name("schemathesis"),
            f"--config-file={tmp_path / 'schemathesis.toml'}",
            "run",
            f"{service.url}/openapi.json",
            f"--header=Authorization:Bearer {secret}",
            "--checks=all",
            f"--max-examples={EXAMPLES}",
            "--seed=7",
            "--continue-on-failure",
            "--request-timeout=60",
            "--suppress-health-check=all",
            "--warnings=off",
            "--no-color",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
