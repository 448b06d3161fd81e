"""Rates of flows: max-min over the links that bind, wherever a change can reach."""

from stepsim.simulator.compiled.kernels import set_rate
from stepsim.simulator.compiled.records import BINDING, EPOCH, FLOWS, FULL, JOINED, LINKS, NONE, State, inline


@inline
def _collect(s: State, number: int) -> None:
    if s.streams[number].mark != s.count[EPOCH]:
        s.streams[number].mark = s.count[EPOCH]
        s.flows[s.count[FLOWS]] = number
        s.count[FLOWS] += 1


@inline
def share_links(s: State, now: float) -> None:
    """Give a rate to each flow that a change can reach: through links that bind, or did."""
    s.count[EPOCH] += 1
    s.count[FLOWS] = s.count[BINDING] = 0
    for place in range(s.count[LINKS]):
        link = s.links[s.touched_links[place]]
        link.touched = 0
        wanted = 0.0
        one = link.flows
        while one != NONE:
            wanted += s.nodes[one].weight * s.streams[s.nodes[one].stream].cap
            one = s.nodes[one].next
        did, link.binds = link.binds, wanted > link.capacity * FULL
        if did or link.binds:
            one = link.flows
            while one != NONE:
                _collect(s, s.nodes[one].stream)
                one = s.nodes[one].next
    for place in range(s.count[JOINED]):
        _collect(s, s.joined[place])
    s.count[LINKS] = s.count[JOINED] = 0
    place = 0
    while place < s.count[FLOWS]:
        stream = s.streams[s.flows[place]]
        for here in range(stream.first_node, stream.first_node + stream.num_nodes):
            number = s.nodes[here].link
            link = s.links[number]
            if link.binds and link.mark != s.count[EPOCH]:
                link.mark = s.count[EPOCH]
                s.binding[s.count[BINDING]] = number
                s.count[BINDING] += 1
                one = link.flows
                while one != NONE:
                    _collect(s, s.nodes[one].stream)
                    one = s.nodes[one].next
        place += 1
    if s.count[BINDING] == 0:
        for place in range(s.count[FLOWS]):
            set_rate(s, s.flows[place], s.streams[s.flows[place]].cap, now)
        return
    _fill(s)
    for place in range(s.count[FLOWS]):
        set_rate(s, s.flows[place], s.streams[s.flows[place]].new, now)


@inline
def _fill(s: State) -> None:
    """Max-min over the collected flows and the binding links between them, one level at a time."""
    num = s.count[FLOWS]
    _sort_by_cap(s, num)
    for place in range(num):
        s.streams[s.flows[place]].new = -1.0
    for place in range(s.count[BINDING]):
        _set_level(s, s.binding[place])
    first = 0
    while True:
        while first < num and s.streams[s.flows[first]].new >= 0:
            first += 1
        if first == num:
            return
        tightest = NONE
        for place in range(s.count[BINDING]):
            number = s.binding[place]
            if s.links[number].open and (
                tightest == NONE
                or s.links[number].level < s.links[tightest].level
                or (s.links[number].level == s.links[tightest].level and number < tightest)
            ):
                tightest = number
        stream = s.streams[s.flows[first]]
        if tightest == NONE or stream.cap <= s.links[tightest].level:
            stream.new = stream.cap
            _set_levels(s, s.flows[first])
            continue
        level = s.links[tightest].level
        one = s.links[tightest].flows
        while one != NONE:
            if s.streams[s.nodes[one].stream].new < 0:
                s.streams[s.nodes[one].stream].new = level
            one = s.nodes[one].next
        s.links[tightest].open = 0
        one = s.links[tightest].flows
        while one != NONE:
            _set_levels(s, s.nodes[one].stream)
            one = s.nodes[one].next


@inline
def _set_levels(s: State, number: int) -> None:
    stream = s.streams[number]
    for here in range(stream.first_node, stream.first_node + stream.num_nodes):
        link = s.links[s.nodes[here].link]
        if link.binds and link.open:
            _set_level(s, s.nodes[here].link)


@inline
def _set_level(s: State, number: int) -> None:
    """What the flows of the link that have no rate yet could all have."""
    link = s.links[number]
    held = weight = 0.0
    link.open = 0
    one = link.flows
    while one != NONE:
        node = s.nodes[one]
        rate = s.streams[node.stream].new
        if rate < 0:
            link.open += 1
            weight += node.weight
        else:
            held += node.weight * rate
        one = node.next
    if link.open:
        link.level = max(0.0, link.capacity - held) / weight


@inline
def _sort_by_cap(s: State, num: int) -> None:
    """Shell sort of the collected flows by (cap, row)."""
    gap = num // 2
    while gap > 0:
        for place in range(gap, num):
            number = s.flows[place]
            cap, row = s.streams[number].cap, s.streams[number].row
            at = place
            while at >= gap:
                other = s.streams[s.flows[at - gap]]
                if other.cap < cap or (other.cap == cap and other.row < row):
                    break
                s.flows[at] = s.flows[at - gap]
                at -= gap
            s.flows[at] = number
        gap //= 2
