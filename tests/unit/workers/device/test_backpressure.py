"""When calls keep the device from items in hand."""

from workers.device.backpressure import Backpressure


def pulse(flow: Backpressure, *, waiting: int, items: int, calls: int) -> bool:
    flow.count_launch(items, calls)
    return flow.update(waiting)


def test_items_that_hardly_move_beside_calls_are_squeezed_at_the_second_pulse() -> None:
    flow = Backpressure()
    assert not pulse(flow, waiting=1000, items=99, calls=500)
    assert pulse(flow, waiting=1000, items=99, calls=500)
    assert flow.active


def test_a_pulse_in_which_they_moved_starts_the_count_anew() -> None:
    flow = Backpressure()
    for items in (0, 100, 0):
        assert not pulse(flow, waiting=1000, items=items, calls=500)


def test_a_slow_model_without_calls_is_not_squeezed() -> None:
    flow = Backpressure()
    for _ in range(5):
        assert not pulse(flow, waiting=4000, items=1, calls=0)


def test_they_stay_squeezed_until_all_that_waits_could_go_in_a_pulse() -> None:
    flow = Backpressure(active=True)
    assert pulse(flow, waiting=1000, items=900, calls=100)
    assert not pulse(flow, waiting=1000, items=1000, calls=100)
    assert not flow.active


def test_they_are_free_again_when_no_call_comes() -> None:
    flow = Backpressure(active=True)
    assert not pulse(flow, waiting=1000, items=0, calls=0)


def test_calls_alone_squeeze_nothing() -> None:
    flow = Backpressure()
    for _ in range(5):
        assert not pulse(flow, waiting=0, items=0, calls=500)
