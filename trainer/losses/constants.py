"""Constants of losses, which have a range outside of which a loss means something else."""


def require_at_least(smallest: float, **constants: float) -> None:
    """Refuses constants, given by their names, that are below a number or NaN.

    Raises:
        ValueError: One is.
    """
    for name, value in constants.items():
        if not value >= smallest:
            raise ValueError(f"{name} = {value:g} must be {smallest:g} or more")
