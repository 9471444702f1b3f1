"""Options: what they mean, and what is said to whoever gets one wrong."""

from __future__ import annotations

import pytest
from kraftpy_spark.options import (
    EARLIEST,
    LATEST,
    ByTimestamp,
    ByTopicTimestamp,
    OptionMistake,
    SinkOptions,
    SourceOptions,
    Subscription,
)
from kraftpy_spark.rows import check_columns
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kraftpy.client.settings import IsolationLevel

BASE = {"kafka.bootstrap.servers": "one:9092, [::1]:9093", "subscribe": "b, a"}

TEXT = StringType()


def schema_of(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def source(is_stream: bool = True, **options: str) -> SourceOptions:
    return SourceOptions.parse(BASE | options, is_stream=is_stream)


def test_defaults_are_sparks_own() -> None:
    stream = source()
    assert stream.bootstrap == (("one", 9092), ("::1", 9093))
    assert stream.subscription == Subscription(topics=("a", "b"))
    assert (stream.starting, source(is_stream=False).starting) == (LATEST, EARLIEST)
    assert source(is_stream=False).ending == LATEST
    assert stream.fails_on_data_loss
    assert not stream.includes_headers
    assert stream.max_trigger_delay_ms == 15 * 60 * 1_000
    assert stream.consumer.auto_offset_reset == "none"
    options = {"kafka.bootstrap.servers": "one:1", "topic": "t", "checkpointLocation": "/c"}
    sink = SinkOptions.parse(options, is_stream=True)
    assert (sink.topic, sink.is_exactly_once) == ("t", False)


def test_every_option_is_read() -> None:
    options = {
        "STARTINGOFFSETS": '{"a": {"0": 5, "1": -2}}',
        "failOnDataLoss": "FALSE",
        "minPartitions": "7",
        "maxRecordsPerPartition": "8",
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "90s",
        "includeHeaders": "true",
        "kafkaConsumer.pollTimeoutMs": "5000",
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.min.bytes": "2",
        "kafka.request.timeout.ms": "9000",
        "kafka.check.crcs": "false",
        "kafka.group.id": "no effect",
        "kafka.security.protocol": "PLAINTEXT",
    }
    found = SourceOptions.parse(BASE | options, is_stream=True)
    assert found.starting == {"a": {0: 5, 1: -2}}
    assert not found.fails_on_data_loss
    assert (found.min_partitions, found.max_records_per_partition) == (7, 8)
    assert (found.max_offsets_per_trigger, found.min_offsets_per_trigger) == (100, 10)
    assert (found.max_trigger_delay_ms, found.poll_timeout_ms) == (90_000, 5_000)
    assert found.includes_headers
    assert found.consumer.isolation_level is IsolationLevel.READ_COMMITTED
    assert (found.consumer.fetch_min_bytes, found.consumer.check_crcs) == (2, False)
    assert found.consumer.client.request_timeout_ms == 9_000


def test_times_go_before_offsets() -> None:
    offsets = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a": {"0": 9}}'}
    assert source(**offsets).starting == ByTopicTimestamp({"a": {0: 9}})
    assert source(**offsets, startingTimestamp="7").starting == ByTimestamp(7)
    ending = source(is_stream=False, endingTimestamp="8").ending
    assert ending == ByTimestamp(8)


def test_options_of_a_producer() -> None:
    options = {
        "kafka.bootstrap.servers": "one:1",
        "kafka.acks": "all",
        "kafka.compression.type": "zstd",
        "kafka.linger.ms": "7",
        "kafka.enable.idempotence": "true",
        "deliveryGuarantee": "exactly-once",
    }
    found = SinkOptions.parse(options, is_stream=True)
    assert (found.topic, found.is_exactly_once) == (None, True)
    assert found.producer.acks == -1
    assert (found.producer.compression_type, found.producer.linger_ms) == ("zstd", 7)
    assert found.producer.enable_idempotence is True


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.bootstrap.servers": ""}, "kraftpy up"),
        ({"kafka.bootstrap.servers": "nowhere"}, "not host:port"),
        ({"assign": '{"a": [0]}'}, "exactly one of"),
        ({"subscribe": " "}, "is empty"),
        ({"startingOffsets": "newest"}, "must look like"),
        ({"startingOffsets": '{"a": [1]}'}, "must look like"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"maxOffsetsPerTrigger": "-3"}, "at least 0"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "greater than"),
        ({"maxTriggerDelay": "soon"}, "30s or 15m"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"topics": "a"}, "no option 'topics'"),
        ({"kafka.security.protocol": "SASL_SSL"}, "not an option of kraftpy's client"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets says"),
        ({"kafka.isolation.level": "dirty"}, "read_committed"),
        ({"kafka.fetch.min.bytes": "many"}, "must be a number"),
    ],
)
def test_mistakes_in_a_source_are_explained(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionMistake, match=said):
        source(**options)


def test_mistakes_in_a_batch_read_are_explained() -> None:
    for options in ({"startingOffsets": "latest"}, {"startingOffsets": '{"a": {"0": -1}}'}):
        with pytest.raises(OptionMistake, match="can't be latest"):
            source(is_stream=False, **options)
    with pytest.raises(OptionMistake, match="can't be earliest"):
        source(is_stream=False, endingOffsets="earliest")
    with pytest.raises(OptionMistake, match="no regular expression"):
        SourceOptions.parse(
            {"kafka.bootstrap.servers": "one:1", "subscribePattern": "("}, is_stream=False
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.transactional.id": "mine"}, "made of the query's id"),
        ({"deliveryGuarantee": "sometimes"}, "at-least-once or exactly-once"),
        ({"deliveryGuarantee": "exactly-once"}, "needs writeStream"),
        ({"kafka.compression.type": "rar"}, "none or gzip"),
        ({"kafka.acks": "0", "kafka.enable.idempotence": "true"}, "don't go together"),
        ({"kafka.key.serializer": "x"}, "cast them"),
        ({"topik": "x"}, "no option 'topik'"),
    ],
)
def test_mistakes_in_a_sink_are_explained(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionMistake, match=said):
        SinkOptions.parse({"kafka.bootstrap.servers": "one:1"} | options, is_stream=False)


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        ({"value": TEXT}, None, "to which topic"),
        ({"key": TEXT}, "t", "no column 'value'"),
        ({"value": IntegerType()}, "t", "must be string or binary; cast it"),
        ({"value": TEXT, "other": IntegerType()}, "t", "to_json"),
        ({"value": TEXT, "partition": LongType()}, "t", "must be int"),
    ],
)
def test_columns_that_no_record_has_are_explained(
    columns: dict[str, DataType], topic: str | None, said: str
) -> None:
    with pytest.raises(OptionMistake, match=said):
        check_columns(schema_of(columns), topic)


def test_columns_of_a_record() -> None:
    header = schema_of({"key": TEXT, "value": BinaryType()})
    columns = {"topic": TEXT, "partition": IntegerType(), "key": BinaryType(), "value": TEXT}
    check_columns(schema_of(columns | {"headers": ArrayType(header)}), None)
