"""The queue of events: an indexed heap over streams and threads, each with at most one event."""

from stepsim.simulator.compiled.records import HEAP, NONE, Records, inline, plain


@plain
def set_event(heap: Records, places: Records, count: Records, id: int, time_s: float) -> None:
    """Schedule the event of ``id``, or move it if it is scheduled."""
    place = places[id]
    if place == NONE:
        place = count[HEAP]
        count[HEAP] += 1
    elif time_s > heap[place].time_s:
        _sift_down(heap, places, count[HEAP], place, id, time_s)
        return
    _sift_up(heap, places, place, id, time_s)


@plain
def drop_event(heap: Records, places: Records, count: Records, id: int) -> None:
    """Forget the event of ``id``, if it has one: the last of the heap takes its place."""
    place = places[id]
    if place == NONE:
        return
    places[id] = NONE
    count[HEAP] -= 1
    size = count[HEAP]
    if place == size:
        return
    last, time_s = heap[size].id, heap[size].time_s
    if place > 0 and heap[(place - 1) >> 1].time_s > time_s:
        _sift_up(heap, places, place, last, time_s)
    else:
        _sift_down(heap, places, size, place, last, time_s)


@inline
def _sift_up(heap: Records, places: Records, place: int, id: int, time_s: float) -> None:
    while place > 0:
        above = (place - 1) >> 1
        if heap[above].time_s <= time_s:
            break
        _move(heap, places, above, place)
        place = above
    _put(heap, places, place, id, time_s)


@inline
def _sift_down(heap: Records, places: Records, size: int, place: int, id: int, time_s: float) -> None:
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and heap[below + 1].time_s < heap[below].time_s:
            below += 1
        if heap[below].time_s >= time_s:
            break
        _move(heap, places, below, place)
        place = below
    _put(heap, places, place, id, time_s)


@inline
def _move(heap: Records, places: Records, source: int, target: int) -> None:
    _put(heap, places, target, heap[source].id, heap[source].time_s)


@inline
def _put(heap: Records, places: Records, place: int, id: int, time_s: float) -> None:
    heap[place].time_s = time_s
    heap[place].id = id
    places[id] = place
