"""How the classes of a store and of Gaussians are matched."""

from difficulty_service.scoring.rows import match_classes


def test_classes_of_the_gaussians_keep_their_labels() -> None:
    classes = match_classes(["b", "x", "a"], ["a", "b"])

    assert classes.names == ("a", "b", "x")
    assert classes.label_of.tolist() == [1, 2, 0]
    assert classes.num_fitted == 2
