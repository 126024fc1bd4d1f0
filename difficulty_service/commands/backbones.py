"""`difficulty backbones`: what can turn images into features."""


def backbones() -> None:
    """Lists the backbones, their feature length and whether their weights are here."""
    from difficulty_service.backbones import DEFAULT_BACKBONE, list_backbones
    from difficulty_service.backbones.plugged import list_plugins
    from difficulty_service.commands.console import print_table

    rows = [
        (
            listing.name + (" (default)" if listing.name == DEFAULT_BACKBONE else ""),
            str(listing.feature_dim or "-"),
            listing.weights,
            listing.description,
        )
        for listing in list_backbones()
    ]
    rows += [(pattern, "-", "any", description) for pattern, description in list_plugins()]
    print_table(("name", "features", "weights", "what it is"), rows)
