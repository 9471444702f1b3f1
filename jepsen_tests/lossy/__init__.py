"""A file system that can lose its power, as a process beside the harness."""
