"""Settings that an error suggests, as options of the command line."""

from difficulty_service.commands.wrong_call import option
from difficulty_service.errors import Setting

OPTIONS = {
    "min_actors": "--ray-actors",
    "max_actors": "--ray-actors",
    "mode": "--preprocess",
    "subset": "--shard",
}
"""Options that have another name than the parameter they set."""


def as_option(setting: Setting) -> str:
    """A setting as the command line writes it: `--shrinkage auto`, `--no-resume`."""
    name = OPTIONS.get(setting.parameter, option(setting.parameter))
    if setting.value is None or setting.value is True:
        return name
    if setting.value is False:
        return name.replace("--", "--no-", 1)
    return f"{name} {setting.value}"
