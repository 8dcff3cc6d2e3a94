"""Detection of calls that leave the device no time for items."""

from workers.device.backpressure import Backpressure


def heartbeat(flow: Backpressure, *, waiting: int, items: int, calls: int) -> bool:
    flow.count_launch(items, calls)
    return flow.update(waiting)


def test_it_begins_once_items_hardly_move_twice_and_stays_until_all_can_be_launched() -> None:
    flow = Backpressure()
    for items in (0, 100, 99):
        assert not heartbeat(flow, waiting=1000, items=items, calls=500)
    assert heartbeat(flow, waiting=1000, items=99, calls=500)
    assert flow.active
    flow = Backpressure(active=True)
    assert heartbeat(flow, waiting=1000, items=900, calls=100)
    assert not heartbeat(flow, waiting=1000, items=1000, calls=100)
    assert not flow.active


def test_there_is_none_without_calls_or_without_items() -> None:
    assert not heartbeat(Backpressure(active=True), waiting=1000, items=0, calls=0)
    for waiting, items, calls in ((4000, 1, 0), (0, 0, 500)):
        flow = Backpressure()
        for _ in range(5):
            assert not heartbeat(flow, waiting=waiting, items=items, calls=calls)
