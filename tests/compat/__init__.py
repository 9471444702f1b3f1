"""A package, so that what its tests share is stopped after the last of them (conftest.py)."""
