"""Which features may be scored with which Gaussians, by their descriptions."""

from difficulty_service.errors import Setting, StatisticsError
from difficulty_service.feature_description import FeatureDescription
from difficulty_service.files.wording import list_names


def require_same_features(description: FeatureDescription, fitted_on: FeatureDescription) -> None:
    """Refuses Gaussians that were fitted to another kind of features, or to other classes only.

    Args:
        description: Description of the features to score.
        fitted_on: Description of the features that the Gaussians were fitted to.

    Raises:
        StatisticsError: The features are not of the same kind, and the message names each
            difference; or no class has the same name, so that no sample would get a score.
    """
    different = description.kind_differences(fitted_on, ("in the features", "in the Gaussians"))
    if different:
        raise StatisticsError(
            f"the Gaussians were fitted to other features ({'; '.join(different)})",
            parameter="gaussians",
        )
    names, fitted_names = description.class_names, fitted_on.class_names
    if set(names).isdisjoint(fitted_names):
        raise StatisticsError(
            f"no class of the dataset ({list_names(names)}) is among those that the Gaussians were "
            f"fitted to ({list_names(fitted_names)}), so no image would get a score",
            "give Gaussians of the same classes, or leave out ",
            Setting("gaussians"),
            " to fit new ones",
            parameter="gaussians",
        )
