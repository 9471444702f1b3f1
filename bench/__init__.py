"""Measurements, printed as ratios to a peer in the same run.

`python -m bench` runs them all, `python -m bench network` one of them. The machines that we
measure on are noisy: a line shows medians of interleaved passes, and no test asserts one.
"""
