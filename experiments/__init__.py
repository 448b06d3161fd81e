"""Experiments: one file answers one question. ``python -m experiments list`` names them."""
