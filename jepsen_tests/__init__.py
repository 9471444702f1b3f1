"""The Jepsen-style suite: real nodes as processes, real clients, faults, and a verdict.

python -m jepsen_tests run --workload list-append --nemesis partition --time 60 --seed 7
"""
