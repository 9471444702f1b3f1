"""Clients that try a cluster, and write down what they saw.

A workload has three parts. A *generator* (no I/O) decides what each slot does next, drawn from the
seed. The *executor* carries it out and records it: it knows what a client may do after which
failure, and which failure leaves an outcome unknown. A *client* behind the port in `port.py` talks
to the cluster: our own (`own_client.py`, in any World, so in virtual time too) or, in
`jepsen_tests/clients`, those that people use.

`catalogue.py` lists the workloads, W1 to W16.
"""
