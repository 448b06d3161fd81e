"""Speed of the simulator and of the searches: ``python -m benchmarks``."""
