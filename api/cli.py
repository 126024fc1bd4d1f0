"""The service's commands: `difficulty serve`, `difficulty worker`, `difficulty keys`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from api.settings import Settings

Device = Annotated[
    str | None, typer.Option(help="auto, cpu, cuda, cuda:1, mps; instead of DIFFICULTY_DEVICE.")
]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(serve)
    app.command()(worker)
    keys = typer.Typer(no_args_is_help=True, help="API keys: who may use the service.")
    keys.command("create")(create)
    keys.command("list")(show)
    keys.command("revoke")(revoke)
    app.add_typer(keys, name="keys")


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; instead of DIFFICULTY_HOST.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0 for any free one; instead of DIFFICULTY_PORT."),
    ] = None,
    with_worker: Annotated[
        bool, typer.Option("--with-worker", help="Run workers as well, on this machine.")
    ] = False,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="How many, with --with-worker; one per GPU.")
    ] = 1,
    device: Device = None,
) -> None:
    """Serves datasets' scores over HTTP; settings come from DIFFICULTY_... variables.

    Without API keys only this machine is answered. SIGTERM or Ctrl-C ends it in order.
    """
    from api.server import run_server

    settings = read_settings(host=host, port=port, device=device)
    run_server(settings, workers if with_worker else 0)


def worker(
    device: Device = None,
    once: Annotated[
        bool, typer.Option("--once", help="End as soon as no job is waiting or running.")
    ] = False,
) -> None:
    """Runs the jobs that were sent to the service; start one per device.

    SIGTERM or Ctrl-C lets it finish its job within DIFFICULTY_GRACE seconds, or hand it back.
    """
    from api.logs import set_up_logs
    from api.worker.worker import run_worker

    settings = read_settings(device=device)
    set_up_logs(settings)
    if not once:
        run_worker(settings)
        return
    from api.storage.database import connect

    engine = connect(settings.resolved_database_url.get_secret_value())
    try:
        run_worker(settings, idle_since_start(engine))
    finally:
        engine.dispose()


def create(
    name: Annotated[str, typer.Argument(help="What it is for; shown in `difficulty keys list`.")],
    scopes: Annotated[
        str,
        typer.Option(
            help="read, write (also submit, upload, delete) or admin (also the jobs of all keys); "
            "several with commas between."
        ),
    ] = "write",
) -> None:
    """Makes an API key and prints its secret, once."""
    from api.storage.keys import create_key
    from api.storage.opened_database import opened_database

    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    with opened_database(read_settings()) as engine:
        key, secret = create_key(engine, name, wanted)
    typer.echo(f"key {key.id} ({name}): {', '.join(sorted(key.scopes))}", err=True)
    typer.echo("Keep the secret now; it cannot be shown again:", err=True)
    typer.echo(secret)


def show() -> None:
    """Lists the API keys, without their secrets."""
    from api.storage.keys import list_keys
    from api.storage.opened_database import opened_database
    from difficulty_service.commands.console import print_table

    with opened_database(read_settings()) as engine:
        keys = list_keys(engine)
    print_table(
        ("id", "name", "scopes", "created", "revoked"),
        [
            (
                key.id,
                key.name,
                ",".join(sorted(key.scopes)),
                moment(key.created_at),
                moment(key.revoked_at),
            )
            for key in keys
        ],
    )


def revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="As `difficulty keys list` shows it.")
    ],
) -> None:
    """Ends an API key for good."""
    from api.storage.keys import revoke_key
    from api.storage.opened_database import opened_database
    from difficulty_service.errors import ConfigError

    with opened_database(read_settings()) as engine:
        key = revoke_key(engine, key_id)
    if key is None:
        raise ConfigError(f"there is no key {key_id!r}; see `difficulty keys list`")
    typer.echo(f"key {key.id} ({key.name}) is revoked")


def moment(seconds: float | None) -> str:
    """A time as a person reads it."""
    from datetime import UTC, datetime

    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def read_settings(**given: object) -> "Settings":
    """Settings of the environment, with what was given on the command line instead.

    Raises:
        ConfigError: A variable has no sensible value; the message names it, not its value.
    """
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from api.settings import Settings
    from difficulty_service.errors import ConfigError

    wanted: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**wanted)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        reasons = [
            f"DIFFICULTY_{'.'.join(map(str, each['loc']))}".upper() + f": {each['msg']}"
            for each in found
        ]
        raise ConfigError("; ".join(reasons)) from None
    except SettingsError as error:
        raise ConfigError(f"{error}; lists and mappings are written as JSON") from None


def idle_since_start(engine: "Engine") -> Callable[[], bool]:
    """Says whether there has been a moment without a job that waits or runs."""
    from sqlalchemy.exc import SQLAlchemyError

    from api.jobs.store import counts

    idle = False

    def was_idle() -> bool:
        nonlocal idle
        # Once is enough: a job that came later would be claimed and handed back at once.
        if not idle:
            try:
                found = counts(engine)
            except SQLAlchemyError:
                return False
            idle = found["queued"] + found["running"] == 0
        return idle

    return was_idle
