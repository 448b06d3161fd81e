import numpy as np

from stepsim.traces.handover import HostEvents, handovers

MAIN, OTHER, THIRD = 1, 2, 3


def events(*spans, calls=()):
    """Spans of one thread; those listed in ``calls`` are runtime calls."""
    every = sorted([*((a, b, False) for a, b in spans), *((a, b, True) for a, b in calls)])
    start_s, end_s, in_call = zip(*every, strict=True)
    return HostEvents(np.array(start_s, float), np.array(end_s, float), np.array(in_call, bool))


def turns(threads):
    return [(found.give_s, found.take_s, found.runs) for found in handovers(threads, MAIN)]


def test_what_another_thread_does_within_a_gap_of_the_main_thread_is_waited_for():
    """
    main   0000|....................|9999
    other      ....|33333|.|55555|..
    """
    threads = {MAIN: events((0, 2), (9, 10)), OTHER: events((3, 4), (5, 6))}

    assert turns(threads) == [(3, 6, ((OTHER, 3, 6),))]


def test_each_gap_is_a_hand_over_of_its_own():
    threads = {MAIN: events((0, 2), (5, 6), (9, 10)), OTHER: events((3, 4), (7, 8))}

    assert turns(threads) == [(3, 4, ((OTHER, 3, 4),)), (7, 8, ((OTHER, 7, 8),))]


def test_a_gap_within_an_enclosing_event_counts():
    threads = {MAIN: events((0, 10), (1, 2), (8, 9)), OTHER: events((3, 6))}

    assert turns(threads) == [(3, 6, ((OTHER, 3, 6),))]


def test_a_thread_that_runs_beside_the_main_thread_is_not_waited_for():
    """Its event crosses a border of the main thread's events."""
    threads = {MAIN: events((0, 2), (5, 6)), OTHER: events((3, 7))}

    assert turns(threads) == []


def test_within_a_runtime_call_the_main_thread_waits_for_the_call_alone():
    threads = {MAIN: events((0, 1), calls=[(2, 9)]), OTHER: events((3, 4))}

    assert turns(threads) == []


def test_two_threads_in_one_gap_are_waited_for_together():
    threads = {MAIN: events((0, 1), (9, 10)), OTHER: events((2, 4)), THIRD: events((3, 7))}

    assert turns(threads) == [(2, 7, ((OTHER, 2, 4), (THIRD, 3, 7)))]


def test_a_recording_may_begin_and_end_while_the_main_thread_waits():
    threads = {MAIN: events((4, 5)), OTHER: events((0, 2), (7, 9))}

    assert turns(threads) == [(0, 2, ((OTHER, 0, 2),)), (7, 9, ((OTHER, 7, 9),))]
