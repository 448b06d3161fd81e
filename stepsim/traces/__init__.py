"""Measurements of real machines: the Trace, and readers of the formats that profilers write."""
