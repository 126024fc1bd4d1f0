"""The service's commands, which are imported when they are called."""

from cyclopts import App

from difficulty_service.cli.lazily import REVIEW, SERVE, add_command


def add_commands(app: App) -> None:
    """Adds the commands to the command line."""
    keys = App(name="keys", help="Manages the API keys of the service.", group=SERVE)
    add_command(keys, "api.key_commands:create")
    add_command(keys, "api.key_commands:show", name="list")
    add_command(keys, "api.key_commands:change")
    add_command(keys, "api.key_commands:rotate")
    add_command(keys, "api.key_commands:revoke")
    add_command(app, "api.commands:serve", group=SERVE)
    add_command(app, "api.commands:worker", group=SERVE)
    add_command(app, "api.commands:explore_scores", name="explore", group=REVIEW)
    app.command(keys)
