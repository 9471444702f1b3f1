"""The clients that people use, behind the port of workloads (`kraftpy.verify.workloads.port`).

`table.py` lists them. Each has a table of what its errors mean for a write: a wrong entry there
makes every verdict worthless, so what is not listed is `info`.
"""
