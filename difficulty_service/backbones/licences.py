"""Licences of pretrained weights that limit who may use them, or for what."""

CONDITIONS = {
    "cc-by-nc-4.0": "no commercial use",
    "apple-amlr": "research only",
    "fair-noncommercial-research-license": "research only, no commercial use",
    "seer-license": "research only, no commercial use",
    "dinov3-license": "has to be accepted, excludes some uses",
    "gemma": "has to be accepted, excludes some uses",
}
"""The condition that a user has to know, by the licence's name on the hub; others have none."""


def describe_licence(licence: str) -> str:
    """The name of a licence, with its condition where it has one."""
    condition = CONDITIONS.get(licence)
    return licence if condition is None else f"{licence} ({condition})"


def licence_warnings(name: str, licence: str | None, repository: str) -> tuple[str, ...]:
    """A sentence where the weights of a backbone have a licence with a condition."""
    if licence not in CONDITIONS:
        return ()
    return (
        f"the weights of {name} have a licence with a condition, {describe_licence(licence)}; "
        f"read it in the repository {repository} of the hub before you use their features",
    )
