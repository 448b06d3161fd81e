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
    while place > 0:
        above = (place - 1) >> 1
        if heap[above].time_s <= time_s:
            break
        heap[place].time_s = heap[above].time_s
        heap[place].id = heap[above].id
        places[heap[place].id] = place
        place = above
    heap[place].time_s = time_s
    heap[place].id = id
    places[id] = place


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
        heap[place].time_s = heap[below].time_s
        heap[place].id = heap[below].id
        places[heap[place].id] = place
        place = below
    heap[place].time_s = time_s
    heap[place].id = id
    places[id] = place


@plain
def drop_event(heap: Records, places: Records, count: Records, id: int) -> None:
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
        while place > 0 and heap[(place - 1) >> 1].time_s > time_s:
            above = (place - 1) >> 1
            heap[place].time_s = heap[above].time_s
            heap[place].id = heap[above].id
            places[heap[place].id] = place
            place = above
        heap[place].time_s = time_s
        heap[place].id = last
        places[last] = place
    else:
        _sift_down(heap, places, size, place, last, time_s)
