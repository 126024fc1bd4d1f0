"""Installs packages into the environment of this interpreter: with uv if possible, else with pip.

Run: python .ci/install.py ARGUMENTS_OF_PIP_INSTALL

uv needs a fraction of pip's time, but reads none of pip's settings. Those that say where packages
are found are passed on; with any other that might matter, pip installs. `--compile-bytecode` is for
uv alone, since pip compiles always.
"""

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PLACES = {
    "cert": "SSL_CERT_FILE",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
}
"""Variable of uv for each setting of pip that is passed on."""

WITHOUT_EFFECT = {
    *("cache-dir", "config-file", "default-timeout", "disable-pip-version-check", "no-cache-dir"),
    *("no-color", "no-input", "progress-bar", "quiet", "retries", "root-user-action", "timeout"),
    "verbose",
}
"""Settings of pip that do not change what is installed."""


def pip(*arguments: str) -> list[str]:
    """A call of pip."""
    return [sys.executable, "-m", "pip", *arguments]


def settings() -> dict[str, str]:
    """The settings of pip, from its files and the environment."""
    listed = subprocess.run(pip("config", "list"), check=True, capture_output=True, text=True)  # noqa: S603
    pairs = (line.partition("=") for line in listed.stdout.splitlines())
    return {key.rpartition(".")[2]: ast.literal_eval(value) for key, _, value in pairs}


def install_with_uv(arguments: list[str], folder: Path) -> bool:
    """Whether uv, which is put into a folder with its cache, has installed everything."""
    given = settings()
    if given.keys() - PLACES.keys() - WITHOUT_EFFECT:
        return False
    places = {PLACES[key]: " ".join(value.split()) for key, value in given.items() if key in PLACES}
    if "UV_FIND_LINKS" in places:
        places["UV_FIND_LINKS"] = places["UV_FIND_LINKS"].replace(" ", ",")
    variables = {
        **os.environ,
        **places,
        "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip does: the best version of all places
        "UV_CACHE_DIR": str(folder / "cache"),
    }
    target = folder / "uv"
    get_uv = pip("install", "--quiet", "-c", "constraints.txt", "--target", str(target), "uv")
    if subprocess.run(get_uv, check=False).returncode:  # noqa: S603
        return False
    uv = [str(target / "bin" / "uv"), "pip", "install", "--python", sys.executable]
    try:
        done = subprocess.run([*uv, *arguments], check=False, env=variables)  # noqa: S603
    except OSError:  # it cannot be run here
        return False
    return done.returncode == 0


def main() -> int:
    """Installs what the arguments name; returns the exit code."""
    arguments = sys.argv[1:]
    # In the environment, because uv links files from its cache where both are on one disk.
    with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
        if install_with_uv(arguments, Path(folder)):
            return 0
    rest = [each for each in arguments if each != "--compile-bytecode"]
    return subprocess.run(pip("install", *rest), check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
