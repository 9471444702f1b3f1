"""From a history to a verdict: every anomaly in it, and which of them its configuration forbids.

`check` is the door. One module has one family of anomalies, and its docstring their theory:
`data` and `order` what happened to values, `offsets` what the log said about itself, `groups` and
`group_offsets`, `transactions` and `cycles`, `replicas` what the audit found, `metadata`. They
share `versions`, the order of values that the history implies. `matrix` says what counts against a
run, `vacuity` whether enough happened in it.
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
