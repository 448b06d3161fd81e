"""What the HOME paper reports, as numbers: He et al., "HOME", IEEE Transactions on Computers 72(3), 2023, 826-838.

Tables are read in the text; figures off their vector geometry, about 0.5 % of an axis. Throughput is samples a second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MODELS = ("mobilenet", "squeezenet", "plain20", "vgg16", "resnet", "inception_v3")

SYSTEMS = ("home", "capuchin", "superneurons", "vdnn")


@dataclass(frozen=True, slots=True)
class LargestBatch:
    """Table 2: the largest batch, and the throughput there."""

    batch: int
    samples_per_s: float


TABLE_2: Mapping[str, Mapping[str, LargestBatch]] = {
    model: {
        "pytorch": LargestBatch(*pytorch),
        "capuchin": LargestBatch(*capuchin),
        "home": LargestBatch(*home),
    }
    for model, pytorch, capuchin, home in (
        ("mobilenet", (2012, 1706), (3954, 2999), (4200, 3426)),
        ("plain20", (1040, 2368), (2843, 2012), (2926, 2554)),
        ("squeezenet", (1667, 6273), (4056, 5719), (4347, 6613)),
        ("vgg16", (2759, 2786), (4250, 5120), (5125, 6211)),
        ("resnet", (1255, 2285), (2014, 2179), (2576, 2519)),
        ("inception_v3", (125, 257), (345, 240), (365, 280)),
    )
}

TABLE_3: Mapping[str, tuple[float, float]] = {
    "mobilenet": (28, 1.7e-3),
    "plain20": (41, 2.2e-3),
    "squeezenet": (9, 0.5e-3),
    "vgg16": (25, 1.4e-3),
    "resnet": (10, 0.6e-3),
    "inception_v3": (350, 21.8e-3),
}
"""Seconds of the whole search, on 16 threads, and of one call of the evaluator."""


def _systems(*rows: Sequence[float | None]) -> dict[str, tuple[float | None, ...]]:
    return {system: tuple(row) for system, row in zip(SYSTEMS, rows, strict=True)}


FIGURE_6_BATCHES: Mapping[str, tuple[int, ...]] = {
    "mobilenet": tuple(range(2200, 3501, 100)),
    "squeezenet": tuple(range(1750, 3051, 100)),
    "plain20": tuple(range(1100, 2201, 100)),
    "vgg16": tuple(range(2850, 3951, 100)),
    "resnet": tuple(range(1250, 1951, 50)),
    "inception_v3": tuple(range(140, 241, 10)),
}

FIGURE_6: Mapping[str, Mapping[str, tuple[float | None, ...]]] = {
    "mobilenet": _systems(
        (3513, 3518, 3457, 3403, 3446, 3475, 3487, 3440, 3476, 3446, 3437, 3424, 3425, 3401),
        (3073, 3073, 3044, 3057, 3011, 3097, 3020, 3011, 3049, 3047, 2985, 2982, 2948, 3043),
        (2236, 2235, 2239, 2229, 2231, 2237, 2237, 2265, 2269, 2233, 2271, 2267, 2269, 2270),
        (962, 961, 962, 962, 961, 961, 960, 961, 960, 967, 967, 968, 968, 967),
    ),
    "squeezenet": _systems(
        (6900, 6930, 7035, 6955, 6689, 6843, 6796, 6899, 6702, 6494, 6621, 6618, 6784, 6608),
        (6029, 6184, 5963, 6146, 6150, 6008, 5939, 5860, 5926, 5925, 5819, 5739, 5755, 5859),
        (4761, 4789, 4846, 4850, 4836, 4855, 4890, 4981, 4995, 5075, 5065, 5075, 5075, 5169),
        (1236, 1239, 1241, 1243, 1242, 1243, 1245, 1250, 1253, 1254, 1254, 1253, 1254, 1256),
    ),
    "plain20": _systems(
        (2691, 2693, 2697, 2587, 2663, 2641, 2623, 2624, 2599, 2553, 2528, 2559),
        (2419, 2342, 2336, 2264, 2316, 2282, 2297, 2264, 2232, 2252, 1959, 2075),
        (1322, 1339, 1606, 1609, 1613, 1617, 1609, 1613, 1613, 1614, 1612, 1611),
        (567, 570, 569, 572, 569, 569, 567, 613, 613, 613, 613, 613),
    ),
    "vgg16": _systems(
        (6478, 6191, 6467, 6326, 6113, 6117, 6260, 5907, 6095, 6193, 6079, 6243),
        (5387, 5563, 5590, 5569, 4977, 4991, 4951, 5012, 5204, 5072, 5103, 5126),
        (3986, 3976, 4237, 4236, 4346, 4344, 4349, 4222, 4226, 4229, 4340, 4350),
        (1458, 1460, 1492, 1492, 1492, 1509, 1491, 1490, 1489, 1492, 1511, 1513),
    ),
    "resnet": _systems(
        (2520, 2490, 2500, 2497, 2514, 2377, 2422, 2491, 2454, 2369, 2384, 2500, 2413, 2399, 2407),
        (2255, 2263, 2258, 2202, 2199, 2089, 2143, 2203, 2179, 2136, 2095, 2158, 2156, 2167, 2096),
        (1628, 1691, 1693, 1599, 1591, 1595, 1588, 1597, 1690, 1684, 1691, 1690, 1793, 1795, 1796),
        (725, 726, 725, 720, 719, 719, 718, 719, 736, 734, 736, 734, 749, 749, 749),
    ),
    "inception_v3": _systems(
        (283, 287, 287, 289, 285, 275, 275, 281, 280, 270, 276),
        (238, 245, 244, 244, 246, 243, 240, 241, 241, 242, 242),
        (194, 194, 197, 197, 196, 198, 199, 198, 200, 203, 204),
        (171, 171, 173, None, None, None, None, None, None, None, None),
    ),
}
"""Samples a second at `FIGURE_6_BATCHES`; None where nothing is plotted."""

FIGURE_6_PYTORCH: Mapping[str, Mapping[int, float]] = {
    "mobilenet": {1900: 1787, 2000: 1775, 2100: 1756},
    "squeezenet": {1450: 6200, 1550: 6201, 1650: 6226},
    "plain20": {800: 2325, 900: 2307, 1000: 2380},
    "vgg16": {2550: 2990, 2650: 2697, 2750: 2620},
    "resnet": {1100: 2268, 1150: 2304, 1200: 2285},
    "inception_v3": {110: 254, 120: 257, 130: 253},
}
"""By batch."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Figure 7, seconds of one step: ``computing`` and ``overlap`` together are all computing."""

    computing: float
    exposed: float
    overlap: float
    recomputing: float


FIGURE_7: Mapping[tuple[str, int], Mapping[str, Breakdown]] = {
    ("vgg16", 3950): {
        "home": Breakdown(0.267, 0.0, 0.374, 0.020),
        "capuchin": Breakdown(0.383, 0.0, 0.287, 0.064),
        "superneurons": Breakdown(0.376, 0.086, 0.271, 0.190),
        "vdnn": Breakdown(0.600, 1.963, 0.065, 0.0),
    },
    ("inception_v3", 170): {
        "home": Breakdown(0.233, 0.005, 0.388, 0.019),
        "capuchin": Breakdown(0.339, 0.038, 0.300, 0.027),
        "superneurons": Breakdown(0.226, 0.054, 0.416, 0.153),
        "vdnn": Breakdown(0.468, 0.328, 0.178, 0.0),
    },
}
"""By model and batch. Swapping that is not read off the figure, about 0, stands as 0."""


@dataclass(frozen=True, slots=True)
class Convergence:
    """Figure 8: iterations until the best particle stays; at the end, seconds of a step of the best and of the mean."""

    iterations: int
    best_s: float
    mean_s: float


FIGURE_8: Mapping[str, Convergence] = {
    "mobilenet": Convergence(42, 1.015, 1.070),
    "squeezenet": Convergence(30, 0.290, 0.330),
    "plain20": Convergence(42, 0.865, 0.970),
    "vgg16": Convergence(42, 0.655, 0.755),
    "resnet": Convergence(16, 0.655, 0.680),
    "inception_v3": Convergence(89, 0.630, 0.745),
}
"""Iterations are in the text, where 42 is the mean of the three that have it here; seconds are read by eye."""

FIGURE_9: Mapping[str, float] = {
    "mobilenet": 0.0031,
    "squeezenet": 0.0060,
    "plain20": 0.0034,
    "vgg16": 0.0058,
    "resnet": 0.0036,
    "inception_v3": 0.0090,
}
"""Mean relative error of the evaluator against the paper's hardware, 50 runs a model."""


def mean_ratio(model: str, system: str) -> float:
    """The mean over the batches of Figure 6 of HOME's throughput over that of ``system``.

    >>> round(mean_ratio("vgg16", "vdnn"), 2)
    4.16
    """
    pairs = zip(FIGURE_6[model]["home"], FIGURE_6[model][system], strict=True)
    ratios = [ours / theirs for ours, theirs in pairs if ours and theirs]
    return sum(ratios) / len(ratios)


def figure_8_batch(model: str) -> int:
    """Figure 8 has no batches. Ours, not the paper's: of figure 6 the one at which HOME's step is nearest to it.

    >>> figure_8_batch("mobilenet")
    3500
    """
    rates = dict(zip(FIGURE_6_BATCHES[model], FIGURE_6[model]["home"], strict=True))
    steps_s = {batch: batch / rate for batch, rate in rates.items() if rate}
    return min(steps_s, key=lambda batch: abs(steps_s[batch] - FIGURE_8[model].best_s))
