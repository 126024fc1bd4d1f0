"""What runs minimised, in the cells of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

HEADER = ("loss", "entropy term", "weights of the samples")
NOTHING = "\N{EN DASH}"


def objective_cells(objective: Mapping[str, Any]) -> list[str]:
    """The cells under HEADER.

    Args:
        objective: Values of `objective.json`.
    """
    loss, weights = objective["loss"], objective["weights"]
    constants = ", ".join(f"{key} = {_shown(value)}" for key, value in loss["constants"].items())
    name = f"{loss['name']} ({constants})" if constants else loss["name"]
    if labels := objective.get("labels"):
        name += (
            ", by the posterior of labels"
            if labels["targets"] == "posterior"
            else ", times the probability of the label"
        )
    if weights == "none":
        return [name, "none", NOTHING]
    term = f"{objective['alpha']:g} x entropy"
    if weights == "constant":
        return [name, term, "all 1"]
    return [name, f"{objective['alpha']:g} x weight x entropy", _weights(objective)]


def _weights(objective: Mapping[str, Any]) -> str:
    """Where the weights come from and how they are distributed."""
    scores, formula, spread = (objective[key] for key in ("scores", "formula", "distribution"))
    return (
        f"by `{scores['column']}` of {scores['file']}; "
        f"{formula['normalise']}, T = {formula['score_temperature']:g}; "
        f"mean {spread['mean']:.2f} ± {spread['std']:.2f}, "
        f"{spread['min']:.2f} to {spread['max']:.2f}"
    )


def _shown(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_shown, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
