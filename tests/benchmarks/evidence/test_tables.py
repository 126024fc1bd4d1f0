"""Tables whose best numbers are bold, as a reader sees them."""

from benchmarks.evidence.tables import NOT_RUN, Number, best_in_columns, best_in_rows


def test_numbers_that_read_the_same_are_equally_good() -> None:
    row = [Number(0.98761, "0.988"), Number(0.98764, "0.988"), Number(0.5, "0.500")]

    table = best_in_rows(("labels", "a", "b", "c"), {"worst": row})

    assert table.splitlines()[-1] == "| worst | **0.988** | **0.988** | 0.500 |"


def test_what_has_not_run_is_never_the_best() -> None:
    row = [NOT_RUN, Number(-0.1, "-0.100")]

    table = best_in_rows(("labels", "a", "b"), {"worst": row})

    assert table.splitlines()[-1] == "| worst | not run | **-0.100** |"


def test_each_column_has_its_own_best_and_empty_rows_are_left_out() -> None:
    columns = [[Number(1, "1"), Number(2, "2"), NOT_RUN], [Number(4, "4"), Number(3, "3"), NOT_RUN]]

    table = best_in_columns(("score", "a", "b"), ["x", "y", "z"], columns)

    assert table.splitlines()[2:] == ["| x | 1 | **4** |", "| y | **2** | 3 |"]
