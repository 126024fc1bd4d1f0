"""Files of others that the pages use are those that their authors published."""

import hashlib
import json
from pathlib import Path

import api.pages

VENDOR = Path(api.pages.__file__).parent / "static" / "vendor"


def test_every_vendored_file_is_in_the_manifest_and_unchanged() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text())

    digests = {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in manifest}
    licences = {each["license_file"] for each in manifest.values()}

    assert digests == {name: each["sha256"] for name, each in manifest.items()}
    assert {path.name for path in VENDOR.iterdir()} == {"manifest.json", *manifest, *licences}
    assert all(each["version"] and each["npm_integrity"] for each in manifest.values())
