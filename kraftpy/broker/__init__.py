"""The data broker: hosts replicas, leads or follows, and lives under the controller's eye.

Whether an answer may be given, who is in sync and what is committed is decided by plain classes
without I/O (partition.py, follower_progress.py, isr.py, fetcher_core.py); the rest moves bytes.
"""
