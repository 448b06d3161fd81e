"""Small machines with shared links, drawn from a numpy generator: one shape, whose parts may be there or not.

gpu0 --lane--+--uplink--+
gpu1 --lane--+          +--memory-- host        peers go over their lanes, and over the uplinks where these differ
gpu2 --lane-----uplink--+
"""

from numpy.random import Generator
from small_machines import PLENTY_BYTES, link

from stepsim.machines import Device, DeviceKind, Machine, Route

SPEEDS_BYTES_PER_S = (0.3, 0.5, 1.0, 1.0, 2.0, 30.0)


def seeded_machine(random: Generator, *, num_gpus: int, with_cpu: bool) -> Machine:
    """``gpu0``, ``gpu1``, ... two on a node, perhaps ``cpu0``, and ``host``, with a route from each to each other."""
    node = {f"gpu{i}": f"node{i // 2}" for i in range(num_gpus)}
    names = [*node, *(["cpu0"] if with_cpu else []), "host"]
    switched, half_duplex = ({part for part in (*names, *node.values()) if random.random() < 0.5} for _ in range(2))
    up = {name: [name, *({node.get(name)} & switched)] for name in names[:-1]}
    memory = ["memory"] if random.random() < 0.4 else []

    def route(source: str, destination: str) -> Route:
        """Up from the source, down to the destination; not over what both stand behind."""
        there, back = up.get(source, []), up.get(destination, [])
        outward = [part if part in half_duplex else f"{part} up" for part in there if part not in back]
        inward = [part if part in half_duplex else f"{part} down" for part in back[::-1] if part not in there]
        links = [*outward, *(memory if "host" in (source, destination) else []), *inward]
        return Route(source=source, destination=destination, links=tuple(links))

    routes = tuple(route(one, two) for one in names for two in names if one != two)
    used = dict.fromkeys(name for route in routes for name in route.links)
    return Machine(
        name="seeded",
        devices=tuple(_device(random, name, node.get(name, "")) for name in names),
        links=tuple(link(name, float(random.choice(SPEEDS_BYTES_PER_S))) for name in used),
        routes=routes,
    )


def _device(random: Generator, name: str, node: str) -> Device:
    kind = DeviceKind(name.rstrip("0123456789"))
    copy_engines, speed = int(random.integers(1, 4)), float(random.choice([1.0, 1.0, 0.8, 1.5]))
    given = {"memory_bytes": True, "copy_engines": copy_engines > 1, "speed": speed != 1}
    return Device(
        name=name,
        kind=kind,
        memory_bytes=PLENTY_BYTES,
        copy_engines=copy_engines,
        speed=speed,
        node=node,
        sources={field: "test" for field, is_given in given.items() if is_given},
    )
