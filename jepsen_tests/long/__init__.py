"""Runs that take hours: losses of power, soaks, overload, whole nights; and what they add up to.

Each is a command of `python -m jepsen_tests` with a size, so that it can be tried in seconds.
"""
