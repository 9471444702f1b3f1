"""From a history to a verdict: every anomaly in it, and which of them its configuration forbids.

`check` is the door. One module has one family of anomalies, and its docstring their theory:
`data` and `order` what happened to values, `offsets` what the log said about itself, `groups`,
`transactions` with `cycles`, and `linearizability` for metadata. They share `versions`, the order
of values that the history implies. `matrix` says what counts, `vacuity` whether enough happened.
"""

from kraftpy.verify.checkers.audit import Audit, AuditedBatch, AuditedRecord, ReplicaAudit
from kraftpy.verify.checkers.check import check
from kraftpy.verify.checkers.expectations import Expectations, Vacuity
from kraftpy.verify.checkers.verdict import Anomaly, Verdict

__all__ = [
    "Anomaly",
    "Audit",
    "AuditedBatch",
    "AuditedRecord",
    "Expectations",
    "ReplicaAudit",
    "Vacuity",
    "Verdict",
    "check",
]
