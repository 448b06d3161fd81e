"""A search like SwapAdvisor's: the order of ops and what stays of each size by a genetic algorithm, swaps by Belady."""
