"""stepsim: how long will one training step take, and how much memory, run this way on that machine?"""
