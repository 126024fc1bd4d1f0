"""The marks that there are, which pages, bodies and scripts are made of."""

from difficulty_service.bodies.marks import MarkCounts
from difficulty_service.marks.mark_kinds import (
    MARK_KINDS,
    Mark,
    count_kinds,
    kinds_for,
    script_data,
)


def test_every_mark_has_a_kind_with_a_key_and_words_of_its_own() -> None:
    assert [*MARK_KINDS] == [*Mark]
    for words in ("key", "help", "verb", "of_several", "done", "colour"):
        assert len({getattr(kind, words) for kind in MARK_KINDS.values()}) == len(Mark), words


def test_a_sum_names_wrong_labels_first_and_marks_that_no_sample_has() -> None:
    assert count_kinds({"keep": 1200, "drop": 3}) == "0 relabelled, 3 dropped, 1,200 kept"


def test_boxes_alone_can_be_off_and_a_sum_tells_how_many_are() -> None:
    assert kinds_for(boxes=True).keys() - kinds_for(boxes=False).keys() == {Mark.MISPLACED}
    assert count_kinds({"keep": 2, "misplaced": 1}) == (
        "0 relabelled, 0 dropped, 2 kept, 1 with a misplaced box"
    )


def test_scripts_know_which_marks_need_a_class_and_which_say_that_a_label_is_wrong() -> None:
    known = {each["mark"]: each for each in script_data(MARK_KINDS)}

    assert {name for name, each in known.items() if each["needsClass"]} == {"relabel"}
    assert {name for name, each in known.items() if each["isWrong"]} == {"relabel", "drop"}
    assert {each["key"]: name for name, each in known.items()} == {
        "k": "keep",
        "r": "relabel",
        "d": "drop",
        "b": "misplaced",
    }


def test_the_interface_counts_every_mark() -> None:
    assert [*MarkCounts.model_fields] == [mark.value for mark in MARK_KINDS]
