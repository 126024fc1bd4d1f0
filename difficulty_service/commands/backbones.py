"""`difficulty backbones`: what can turn images or texts into features."""


def backbones() -> None:
    """Lists the backbones, their feature length and whether their weights are here."""
    from difficulty_service.backbones import DEFAULT_BACKBONE, list_backbones
    from difficulty_service.commands.console import print_table

    rows = [
        (
            listing.name + (" (default)" if listing.name == DEFAULT_BACKBONE else ""),
            listing.modality,
            str(listing.feature_dim or "-"),
            listing.weights,
            listing.description,
        )
        for listing in list_backbones()
    ]
    print_table(("name", "samples", "features", "weights", "what it is"), rows)
