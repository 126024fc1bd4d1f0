"""Why images have no features, in a few phrases."""

from difficulty_service.features.errors_file import BadImage, describe_reasons


def test_reasons_that_differ_in_numbers_or_bytes_alone_are_of_one_kind() -> None:
    errors = [
        BadImage("a.png", "the file is empty"),
        BadImage("b.png", "90 x 60 pixels of 50; raise max_pixels if genuine"),
        BadImage("c.png", "80 x 70 pixels of 50; raise max_pixels if genuine"),
        BadImage("d.png", """it begins with b'It is'"""),
        BadImage("e.png", """it begins with b"It isn't"; and more"""),
    ]

    assert describe_reasons(errors, "image", lambda setting: f"--{setting.parameter}") == [
        "2 images, first b.png: 90 x 60 pixels of 50; raise --max_pixels if genuine",
        "1 image, a.png: the file is empty",
        "1 image, d.png: it begins with b'It is'",
        """1 image, e.png: it begins with b"It isn't"; and more""",
    ]


def test_of_many_kinds_of_reasons_the_rest_is_counted() -> None:
    errors = [BadImage(f"{name}.png", f"because of {name}") for name in "abcdefghijklmnopqrstuvw"]

    phrases = describe_reasons(errors, "image")

    assert len(phrases) == 21
    assert phrases[-1] == "3 images for other reasons"
