"""Keep, swap or recompute: what to do with each tensor that the backward pass needs."""
