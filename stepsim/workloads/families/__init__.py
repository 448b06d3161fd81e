"""Model families of the literature as training steps: one family a file, each factory ``factory(batch, ...)``.

A factory gives ``(module that returns its loss, inputs, optimizer)`` with weights and inputs from a fixed seed. Its
other arguments make the same network smaller, down to one that trains on a laptop in no time.
"""

SEED = 0
