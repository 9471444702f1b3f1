"""What a log keeps of equal records, and of the records of a coordinator."""

from __future__ import annotations

from cleaning_rig import COMPACTED, CompactedRig, keyed, records_in
from log_rig import Rig, batch, values_in

from kraftpy.protocol.coordinator_records import TRANSACTION_RECORDS, encode_key, encode_value
from kraftpy.protocol.schema.transaction_records import TransactionLogKey, TransactionLogValue
from kraftpy.world.memory_disk import MemoryDisk

COMPLETE_COMMIT, ONGOING = 4, 1


async def test_equal_content_that_is_sent_twice_is_there_twice(rig: Rig) -> None:
    """TXN-8: only the sequence number says that a batch is a repetition."""
    log = await rig.load()
    for sequence in (0, 1):
        log.append_as_leader(batch(b"x", producer_id=7, producer_epoch=0, sequence=sequence), 0)
    log.append_as_leader(batch(b"x"), 0)
    again = log.append_as_leader(batch(b"x", producer_id=7, producer_epoch=0, sequence=1), 0)
    assert again.is_duplicate
    assert values_in(log) == {0: b"x", 1: b"x", 2: b"x"}


async def test_the_last_state_of_a_transactional_id_survives_compaction() -> None:
    """TXN-41: of many transactions of an id one record is left, and it is the last."""
    disk = MemoryDisk()
    await disk.make_directory("/data")
    rig = CompactedRig(disk, "/data", COMPACTED)
    await rig.start()
    for epoch in range(40):
        for name in ("first", "second"):
            for state in (ONGOING, COMPLETE_COMMIT):
                value = TransactionLogValue(
                    producer_id=7, producer_epoch=epoch, transaction_status=state
                )
                key = encode_key(TransactionLogKey(transactional_id=name))
                rig.append(keyed((key, encode_value(value, 1))))
    while await rig.clean():
        pass
    found = {}
    for record in records_in(rig.log):
        key_found = TRANSACTION_RECORDS.decode_key(record.key or b"")
        value_found, _ = TRANSACTION_RECORDS.decode_value(key_found, record.value or b"")
        assert isinstance(key_found, TransactionLogKey)
        assert isinstance(value_found, TransactionLogValue)
        assert key_found.transactional_id not in found
        found[key_found.transactional_id] = value_found
    states = {name: (each.producer_epoch, each.transaction_status) for name, each in found.items()}
    assert states == {"first": (39, COMPLETE_COMMIT), "second": (39, COMPLETE_COMMIT)}
