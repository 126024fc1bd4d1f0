"""A client keeps up a minimum rate, averaged over windows of time."""

from api.http.pace import Pace


def test_a_client_at_the_minimum_rate_may_go_on_for_ever() -> None:
    pace = Pace(window=10, rate=100)

    assert not any(pace.is_too_slow(second, 100 * second) for second in range(10_000))


def test_a_client_below_it_is_found_at_the_end_of_the_window() -> None:
    pace = Pace(window=10, rate=100)

    found = [second for second in range(20) if pace.is_too_slow(second, 99 * second)]

    assert found[0] == 10


def test_bytes_of_an_earlier_window_do_not_count_for_a_later_one() -> None:
    pace = Pace(window=10, rate=100)

    assert not pace.is_too_slow(10, 1_000_000)
    assert pace.is_too_slow(20, 1_000_999)


def test_a_pause_that_is_not_the_clients_begins_a_new_window() -> None:
    pace = Pace(window=10, rate=100)

    pace.restart(9, 0)

    assert not pace.is_too_slow(18, 0)
    assert pace.is_too_slow(19, 0)
