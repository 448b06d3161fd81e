"""Recomputation alone: which results to keep until when, so that the rest can be computed again in time."""
