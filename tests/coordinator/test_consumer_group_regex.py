"""Subscriptions by pattern (CGP-40 to CGP-43, CGP-45)."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.consumer_kit import (
    INTERVAL_MS,
    Client,
    ConsumerRig,
    settle,
    types,
)

from kraftpy.coordinator.groups.regex_pattern import (
    MAX_PATTERN_LENGTH,
    MAX_PROGRAM_SIZE,
    MAX_UNICODE_CLASSES,
    compile_pattern,
)
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.batch import RecordBatch

REFRESH_MS = 20_000
MIN_MS = 10_000
TOPICS = {"foo": 2, "foobar": 2, "bar": 2}


class TestPatterns:
    @pytest.mark.parametrize(
        "pattern",
        [
            "(",
            "a**",
            r"(a)\1",
            "(?=a)b",
            "(?<!a)b",
            "a{2,1}",
            "[z-a]",
            "a" * (MAX_PATTERN_LENGTH + 1),
            "(.?){500}",
            "\ud800",
        ],
    )
    def test_what_is_refused(self, pattern: str) -> None:
        """CGP-40, CGP-42."""
        with pytest.raises(CoordinatorError) as error:
            compile_pattern(pattern)
        assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION

    @pytest.mark.parametrize(
        ("pattern", "matches"),
        [
            ("foo", ["foo"]),
            ("foo.*", ["foo", "foobar"]),
            ("foo|foobar", ["foo", "foobar"]),
            (".*ar", ["foobar", "bar"]),
            ("(?i)FOO", ["foo"]),
            ("", []),
            (r"\w{3}", ["foo", "bar"]),
            ("a" * MAX_PATTERN_LENGTH, []),
        ],
    )
    def test_whole_names(self, pattern: str, matches: list[str]) -> None:
        """CGP-42."""
        if len(pattern) > MAX_PROGRAM_SIZE:
            # One instruction for each character is more than there may be.
            pattern = pattern[: MAX_PROGRAM_SIZE - 100]
        compiled = compile_pattern(pattern)
        assert [name for name in TOPICS if compiled.fullmatch(name)] == matches

    @pytest.mark.parametrize("name", [r"\p{Greek}", r"\P{Greek}"])
    def test_one_class_of_unicode_too_many(self, name: str) -> None:
        """They take long to read: with a thousand of them, it was half a second on the loop."""
        compile_pattern(name * MAX_UNICODE_CLASSES)
        with pytest.raises(CoordinatorError) as error:
            compile_pattern(name * (MAX_UNICODE_CLASSES + 1))
        assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION

    def test_one_instruction_too_many(self) -> None:
        size = compile_pattern("a").programsize
        compile_pattern("a" * (MAX_PROGRAM_SIZE - size + 1))
        with pytest.raises(CoordinatorError):
            compile_pattern("a" * (MAX_PROGRAM_SIZE - size + 2))


class TestJoining:
    def test_a_bad_pattern_changes_nothing(self) -> None:
        """CGP-40."""
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", regex="(")
        assert rig.refused(**client.full_request()) is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert rig.machine.directory.get("g") is None

    def test_the_answer_does_not_wait(self) -> None:
        """CGP-41: topics come with a later heartbeat."""
        rig = ConsumerRig(TOPICS, commits_at_once=False)
        client = Client(rig, "m", regex="foo.*")
        waiting = rig.heartbeat(**client.full_request())
        rig.log.high_watermark = rig.log.log_end_offset
        rig.commit()
        client.take(waiting.answer)
        assert (client.epoch, client.owned) == (1, {})
        rig.commit()
        rig.clock.now_ms += INTERVAL_MS
        client.beat()
        assert (client.epoch, client.owned) == (2, {"foo": {0, 1}, "foobar": {0, 1}})

    def test_what_is_written(self) -> None:
        """CGP-41: the result and the new epoch in one batch."""
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", regex="foo.*")
        written = rig.written(client.join)
        assert types(written) == ["5", "3", "7", "6", "8", "16", "3"]
        assert rig.group().resolved_regexes["foo.*"].topics == ("foo", "foobar")
        last = RecordBatch(rig.log.batches[-1])
        assert last.next_offset - last.base_offset == 2

    def test_names_and_pattern_are_a_union(self) -> None:
        """CGP-45."""
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", ["bar"], regex="foo")
        client.join()
        settle([client], 3)
        assert client.owned == {"bar": {0, 1}, "foo": {0, 1}}

    def test_a_pattern_that_is_known_is_not_resolved_again(self) -> None:
        rig = ConsumerRig(TOPICS)
        first, second = Client(rig, "a", regex="foo"), Client(rig, "b", regex="foo")
        first.join()
        rig.clock.now_ms += INTERVAL_MS
        written = rig.written(second.join)
        assert "16" not in types(written)
        assert rig.group().epoch.value == 3
        settle([first, second], 5)
        assert sorted([*first.owned["foo"], *second.owned["foo"]]) == [0, 1]

    def test_a_pattern_that_matches_nothing(self) -> None:
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", regex="nothing")
        client.join()
        settle([client], 2)
        assert client.owned == {}
        assert rig.group().resolved_regexes["nothing"].topics == ()
        assert rig.group().state_name == "Stable"


class TestChanges:
    def test_another_pattern(self) -> None:
        """Its topics go at once, the others come when they are known."""
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", regex="foo")
        client.join()
        settle([client], 3)
        rig.clock.now_ms += MIN_MS
        written = rig.written(lambda: client.beat(subscribed_topic_regex="bar"))
        assert types(written)[:2] == ["5", "-16"]
        assert client.owned == {}
        settle([client], 3)
        assert client.owned == {"bar": {0, 1}}
        assert rig.group().resolved_regexes.keys() == {"bar"}

    def test_no_pattern_any_more(self) -> None:
        """CGP-10, CGP-45: an empty one."""
        rig = ConsumerRig(TOPICS)
        client, other = Client(rig, "a", regex="foo"), Client(rig, "b", ["foo"])
        client.join()
        other.join()
        settle([client, other], 4)
        client.beat(subscribed_topic_regex="")
        settle([client, other], 4)
        assert client.owned == {}
        assert other.owned == {"foo": {0, 1}}
        assert not rig.group().resolved_regexes.keys()

    def test_another_pattern_that_matches_nothing(self) -> None:
        """The group reads the same topics as before, but others have to read them."""
        rig = ConsumerRig(TOPICS)
        client, other = Client(rig, "a", regex="foo"), Client(rig, "b", ["foo"])
        client.join()
        other.join()
        settle([client, other], 4)
        rig.clock.now_ms += MIN_MS
        client.beat(subscribed_topic_regex="nothing")
        settle([client, other], 4)
        assert client.owned == {}
        assert other.owned == {"foo": {0, 1}}

    def test_the_last_subscriber_takes_the_result_along(self) -> None:
        """CGP-45."""
        rig = ConsumerRig(TOPICS)
        first, second = Client(rig, "a", regex="foo"), Client(rig, "b", regex="foo")
        first.join()
        second.join()
        settle([first, second], 3)
        assert types(rig.written(first.leave)) == ["-8", "-7", "-5", "3"]
        assert types(rig.written(second.leave)) == ["-8", "-7", "-5", "-16", "3"]

    def test_a_result_that_comes_too_late(self) -> None:
        """CGP-41: the group is gone, or nobody wants it any more."""
        rig = ConsumerRig(TOPICS, commits_at_once=False)
        client = Client(rig, "m", regex="foo")
        rig.heartbeat(**client.full_request())
        rig.heartbeat(member_id="m", member_epoch=-1)
        rig.commit()
        rig.commit()
        assert not rig.group().resolved_regexes.keys()
        assert "16" not in types(rig.records())

    def test_a_result_that_is_lost_is_looked_for_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", regex="foo")
        append = rig.log.append

        def fail_later(*arguments: Any, **options: Any) -> int:
            monkeypatch.undo()
            offset = append(*arguments, **options)
            rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
            return offset

        monkeypatch.setattr(rig.log, "append", fail_later)
        client.join()
        assert types(rig.records()) == ["5", "3", "7", "6", "8"]
        settle([client], 2)
        assert client.owned == {"foo": {0, 1}}


class TestRefreshing:
    def test_a_new_topic_matches(self) -> None:
        """CGP-43."""
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", regex="foo.*")
        client.join()
        rig.clock.now_ms += MIN_MS + 1
        rig.change_topics(version=1, foo2=1)
        settle([client], 4)
        assert client.owned == {"foo": {0, 1}, "foobar": {0, 1}, "foo2": {0}}

    def test_not_more_often_than_every_ten_seconds(self) -> None:
        """CGP-43."""
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", regex="foo.*")
        client.join()
        start = rig.clock.now_ms
        client.beat()
        rig.change_topics(version=1, foo2=1)
        rig.clock.now_ms = start + MIN_MS
        client.beat()
        assert "foo2" not in rig.group().resolved_regexes["foo.*"].topics
        rig.clock.now_ms += 1
        client.beat()
        assert "foo2" in rig.group().resolved_regexes["foo.*"].topics

    def test_nothing_is_done_for_old_topics(self) -> None:
        """CGP-43: a topic that grows is not a new one; nor is time alone a reason, for long."""
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", regex="foo.*")
        client.join()
        settle([client], 2)
        rig.change_topics(version=1, foo=3)
        rig.clock.now_ms += MIN_MS + 1
        assert "16" not in types(rig.written(client.beat))
        rig.change_topics(version=2, foobar=0)
        assert "16" not in types(rig.written(client.beat))

    def test_after_a_long_time_all_the_same(self) -> None:
        """CGP-43: and no new epoch if it is the same."""
        settings = GroupSettings(consumer_regex_refresh_interval_ms=REFRESH_MS)
        rig = ConsumerRig(TOPICS, settings=settings)
        client = Client(rig, "m", regex="foo.*")
        client.join()
        settle([client], 3)
        rig.clock.now_ms = REFRESH_MS - 1
        assert types(rig.written(client.beat)) == []
        rig.clock.now_ms = REFRESH_MS
        assert types(rig.written(client.beat)) == ["16"]

    def test_a_new_pattern_waits_for_the_ten_seconds_too(self) -> None:
        """CGP-43: all patterns of the group are resolved together."""
        rig = ConsumerRig(TOPICS)
        first, second = Client(rig, "a", regex="foo"), Client(rig, "b", regex="bar")
        first.join()
        second.join()
        settle([first, second], 2)
        assert second.owned == {}
        rig.clock.now_ms += MIN_MS
        assert types(rig.written(second.beat)) == ["16", "16", "3"]
        settle([first, second], 3)
        assert second.owned == {"bar": {0, 1}}

    def test_a_new_coordinator_looks_for_new_topics(self) -> None:
        """CGP-43: some may have come while there was none."""
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", regex="foo.*")
        client.join()
        rig.change_topics(version=7, foo2=1)
        rig.move()
        rig.clock.now_ms += MIN_MS + 1
        settle([client], 3)
        assert client.owned["foo2"] == {0}

    def test_a_deleted_topic(self) -> None:
        """It goes by way of the hash."""
        rig = ConsumerRig(TOPICS)
        client = Client(rig, "m", regex="foo.*")
        client.join()
        settle([client], 3)
        rig.change_topics(version=1, foobar=0)
        settle([client], 3)
        assert client.owned == {"foo": {0, 1}}


def test_a_pattern_that_our_bounds_refuse_matches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record of another coordinator must not break the others' patterns."""
    rig = ConsumerRig(TOPICS)
    first, second = Client(rig, "a", regex="foo"), Client(rig, "b", regex=".*b.*")
    first.join()
    second.join()
    monkeypatch.setattr("kraftpy.coordinator.groups.regex_pattern.MAX_PATTERN_LENGTH", 4)
    rig.clock.now_ms += MIN_MS + 1
    settle([first, second], 3)
    assert rig.group().resolved_regexes[".*b.*"].topics == ()
    assert first.owned == {"foo": {0, 1}}


def test_many_topics_are_matched_in_pieces() -> None:
    """A node with many topics does other things in between."""
    rig = ConsumerRig({f"topic-{number}": 1 for number in range(3000)}, commits_at_once=False)
    client = Client(rig, "m", regex="topic-1.*")
    rig.heartbeat(**client.full_request())
    rig.commit()
    assert len(list(rig.consumers._regexes._resolve("g", lambda _topic: True))) > 3
