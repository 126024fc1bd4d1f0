"""The service's commands: `difficulty serve`, `worker` and `explore`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from difficulty_service.base.extras import needs_extra
from difficulty_service.settings.options import JoinOption

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from api.settings import Settings

Device = Annotated[
    str | None, Parameter(help="auto, cpu, cuda, cuda:1, mps; instead of DIFFICULTY_DEVICE.")
]
Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65535))]


@needs_extra('"difficulty serve"', "serve")
def serve(
    *,
    host: str | None = None,
    port: Port | None = None,
    with_worker: bool = False,
    workers: Annotated[int, Parameter(validator=Number(gte=1, lte=64))] = 1,
    device: Device = None,
) -> None:
    """Scores datasets over HTTP; settings come from DIFFICULTY_... variables.

    Without API keys, it answers only this machine. SIGTERM or Ctrl-C stops the server cleanly.

    Args:
        host: Address to listen on; instead of DIFFICULTY_HOST.
        port: 0 for any free port; instead of DIFFICULTY_PORT.
        with_worker: Also run workers on this machine.
        workers: Number of workers, with --with-worker; one per GPU.
    """
    import sys

    from api.logs import are_for_people
    from api.server import run_server
    from difficulty_service.cli.console import err

    def show(address: str) -> None:
        if are_for_people(settings, sys.stderr):
            err.print(f"Open {address} in a browser; Ctrl-C ends it.")

    settings = read_settings(host=host, port=port, device=device)
    require_usable(settings)
    run_server(settings, workers if with_worker else 0, show)


@needs_extra('"difficulty worker"', "serve")
def worker(*, device: Device = None, once: bool = False) -> None:
    """Runs the jobs of the service; start one worker per device.

    After SIGTERM or Ctrl-C it finishes its job within DIFFICULTY_GRACE seconds, or hands it back.

    Args:
        once: Exit as soon as no job is queued or running.
    """
    from api.logs import set_up_logging
    from api.worker.worker import run_worker

    settings = read_settings(device=device)
    require_usable(settings)
    set_up_logging(settings)
    if not once:
        run_worker(settings)
        return
    from api.storage.database import connect

    engine = connect(settings.resolved_database_url.get_secret_value())
    try:
        run_worker(settings, idle_since_start(engine))
    finally:
        engine.dispose()


@needs_extra('"difficulty explore"', "serve")
def explore_scores(  # noqa: PLR0913 - one parameter for each option
    scores: Path,
    /,
    *,
    images: str | None = None,
    features: Path | None = None,
    weights: Path | None = None,
    port: Port = 0,
    browser: Annotated[bool, Parameter(negative="--no-browser")] = True,
    joined: JoinOption = JoinOption(),  # noqa: B008 - it is frozen
) -> None:
    """Shows the images of a score file in the browser, to find and mark doubtful labels.

    It answers only this machine. Marks are kept beside the score file for `difficulty clean`; if
    the features are there too, the page scores again with them. Ctrl-C ends it.

    Args:
        scores: Score file of `difficulty score`.
        images: Dataset with the images, if it is not the scored one.
        features: Folder of the features, if it is not beside the score file.
        weights: CLIP weights that made the features, for the search by words; default: from the
            hub.
        port: 0 for any free port.
        browser: Open the page in a browser.
    """
    import webbrowser

    import structlog  # noqa: F401 - light, and tells whether the service's packages are here

    from difficulty_service.cli.console import err, out, print_warnings

    # At once, because importing what follows and reading the file take seconds on a slow machine.
    err.print(f"Opening {scores}")

    from api.explore import ExploreOptions, explore
    from difficulty_service.cli.demo import has_desktop
    from difficulty_service.cli.score_report import clean_step, print_steps
    from difficulty_service.scores.file import read_scores

    def show(address: str) -> None:
        out.print(f"Open {address} in a browser; Ctrl-C ends it.")
        tags = read_scores(scores, ["label"]).provenance.tags
        print_steps([clean_step(scores, tags=tags)])
        if browser and has_desktop():
            webbrowser.open(address)

    options = ExploreOptions(scores, images, features, joined.columns, weights)
    explore(options, port, lambda sentence: print_warnings([sentence]), show)


def read_settings(**given: object) -> "Settings":
    """Settings from the environment and secret files, overridden by options of the command line.

    A variable that is no setting is named in a warning: a cluster sets some of its own.

    Raises:
        ConfigError: A variable has an invalid value; the message names it, not its value.
    """
    import os

    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from api.settings import SECRETS, Settings, unknown_variables
    from difficulty_service.base.errors import ConfigError
    from difficulty_service.cli.console import print_warnings

    print_warnings(list(unknown_variables(os.environ)))
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if SECRETS.is_dir():
        options["_secrets_dir"] = SECRETS
    try:
        return Settings(**options)
    except ValidationError as error:
        reasons = [
            f"DIFFICULTY_{'.'.join(map(str, each['loc']))}".upper() + f": {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigError("; ".join(reasons)) from None
    except SettingsError as error:
        field = str(error).split('"')[1]
        name = f"DIFFICULTY_{field}".upper()
        example = EXAMPLES.get(name, '["one", "another"]')
        raise ConfigError(f"{name} is no JSON", f"write it as {name}='{example}'") from None


EXAMPLES = {"DIFFICULTY_ROOTS": '{"photos": "/data/photos"}'}
"""Values of settings that are mappings; those of lists look alike."""


def require_usable(settings: "Settings") -> None:
    """Refuses settings with which a service would start and no job could run.

    Raises:
        ConfigError: A root is no folder, or no device or backbone has that name; the message names
            the variable.
    """
    import re

    from difficulty_service.backbones import find_loader
    from difficulty_service.base.errors import BackboneError, ConfigError
    from difficulty_service.datasets.storage import is_uri

    for name, root in settings.roots.items():
        if not is_uri(root) and not Path(root).is_dir():
            raise ConfigError(
                f"DIFFICULTY_ROOTS: {name!r} is {root!r}, which is no folder of this machine",
                "create or mount it, or correct its path",
            )
    if not re.fullmatch(r"all|auto|cpu|mps|cuda(:\d+)?", settings.device):
        raise ConfigError(
            f"DIFFICULTY_DEVICE: there is no device {settings.device!r}",
            "expected all, auto, cpu, cuda, cuda:1 or mps, such as DIFFICULTY_DEVICE=cuda",
        )
    if settings.default_backbone is not None and ":" not in settings.default_backbone:
        try:
            find_loader(settings.default_backbone)
        except BackboneError as error:
            raise ConfigError(
                f"DIFFICULTY_DEFAULT_BACKBONE: {error.problem}", error.remedy_text(str)
            ) from None


def idle_since_start(engine: "Engine") -> Callable[[], bool]:
    """A function that says whether there has been a moment without a queued or running job."""
    from sqlalchemy.exc import SQLAlchemyError

    from api.jobs.store import counts

    idle = False

    def was_idle() -> bool:
        nonlocal idle
        # Once is enough: a job that came later would be claimed and handed back immediately.
        if not idle:
            try:
                jobs = counts(engine)
            except SQLAlchemyError:
                return False
            idle = jobs["queued"] + jobs["running"] == 0
        return idle

    return was_idle
