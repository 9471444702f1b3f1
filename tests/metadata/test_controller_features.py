"""UpdateFeatures: all or nothing, who must agree, which way levels may go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_cluster import SmallCluster, registration

from kraftpy.metadata.controller.features import FeatureControl
from kraftpy.metadata.controller.result import Caller, ControllerError
from kraftpy.metadata.features import supported_features
from kraftpy.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    RegisterControllerRecord,
)
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE, UNSAFE = 1, 2, 3
VERSION = "metadata.version"
ELR = "eligible.leader.replicas.version"
MIN_ISR = "min.insync.replicas"

Update = tuple[str, int, int]


class Quorum:
    """Stands for Raft."""

    def __init__(self) -> None:
        self.kraft_version = 0
        self.voter_ids: tuple[int, ...] = (100,)
        self.asked: list[tuple[int, bool]] = []

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        if level > 1:
            raise ControllerError(ErrorCode.INVALID_UPDATE_VERSION)
        self.asked.append((level, validate_only))


class Features:
    def __init__(self, cluster: SmallCluster | None = None) -> None:
        self.cluster = cluster or SmallCluster()
        self.quorum = Quorum()
        self.control = FeatureControl(self.cluster.context, self.quorum)

    def update(
        self, *updates: Update, validate_only: bool = False, version: int = 2
    ) -> tuple[MetadataRecord, ...]:
        request = UpdateFeaturesRequest(
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=direction)
                for name, level, direction in updates
            ],
            validate_only=validate_only,
        )
        result = self.control.update_features(request, Caller(api_version=version))
        assert result.is_atomic
        assert encode_bytes(result.answer, 1)
        self.cluster.apply(result.records)
        return result.records

    def refusal(self, *updates: Update) -> str:
        """The message of a refusal; nothing may have been written, nor Raft been asked."""
        before = self.cluster.image
        with pytest.raises(ControllerError) as caught:
            self.update(*updates)
        assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
        assert self.cluster.image is before
        assert self.quorum.asked == []
        return caught.value.message

    def level(self, name: str) -> int | None:
        return self.cluster.image.features.get(name)


@pytest.mark.parametrize(
    ("name", "level", "direction", "why"),
    [
        ("no.such.feature", -1, 0, "no such feature"),
        ("no.such.feature", 0, SAFE, "no such feature"),
        ("group.version", -1, 0, "upgrade type 0"),
        ("group.version", -1, 4, "upgrade type 4"),
        ("group.version", -1, UPGRADE, "not negative"),
        ("group.version", 2, UPGRADE, "does not support"),
        ("share.version", 1, UPGRADE, "does not support"),
        ("group.version", 0, UPGRADE, "asked for as such"),
        ("transaction.version", 1, UPGRADE, "asked for as such"),
        ("streams.version", 1, SAFE, "does not support"),
        (VERSION, 31, UPGRADE, "does not support"),
        (VERSION, 6, UNSAFE, "does not support"),
        (VERSION, 29, UPGRADE, "asked for as such"),
        (VERSION, 29, SAFE, "records"),
        (VERSION, 29, UNSAFE, "not supported"),
        ("kraft.version", 2, UPGRADE, "does not support"),
    ],
)
def test_each_refusal(name: str, level: int, direction: int, why: str) -> None:
    assert why in Features().refusal((name, level, direction))


def test_no_downgrade_to_something_newer() -> None:
    features = Features(SmallCluster(metadata_version=25))
    assert "no downgrade" in features.refusal((ELR, 1, SAFE))
    assert "no downgrade" in features.refusal((VERSION, 26, UNSAFE))


def test_all_or_nothing() -> None:
    features = Features(SmallCluster(metadata_version=25))
    features.refusal((VERSION, 30, UPGRADE), ("group.version", 9, UPGRADE))
    features.refusal(("kraft.version", 1, UPGRADE), ("group.version", 9, UPGRADE))
    features.update((VERSION, 30, UPGRADE), ("group.version", 0, SAFE))
    assert (features.level(VERSION), features.level("group.version")) == (30, None)


def test_the_same_level_again_is_no_error() -> None:
    features = Features()
    features.update((VERSION, 30, UPGRADE), ("group.version", 1, SAFE))
    assert features.level("group.version") == 1


def test_metadata_version_goes_down_where_no_record_is_lost() -> None:
    features = Features(SmallCluster(metadata_version=29))
    features.update((VERSION, 23, SAFE))
    assert features.level(VERSION) == 23
    assert "records" in features.refusal((VERSION, 22, SAFE))


def test_validation_only() -> None:
    features = Features(SmallCluster(metadata_version=25))
    updates: list[Update] = [(VERSION, 26, UPGRADE), ("kraft.version", 1, UPGRADE)]
    assert features.update(*updates, validate_only=True) == ()
    assert features.quorum.asked == [(1, True)]


def test_dependencies_are_judged_by_what_the_request_leads_to() -> None:
    features = Features(SmallCluster(metadata_version=22))
    assert "needs metadata.version 23" in features.refusal((ELR, 1, UPGRADE))
    features.update((ELR, 1, UPGRADE), (VERSION, 23, UPGRADE))
    assert features.level(ELR) == 1


def test_every_broker_must_support_the_level_fenced_ones_too() -> None:
    old = tuple(
        FeatureRange(VERSION, 7, 26) if each.name == VERSION else each
        for each in supported_features()
    )
    brokers = [registration(1), replace(registration(2, fenced=True), features=old)]
    features = Features(SmallCluster(brokers, metadata_version=25))
    assert "broker 2" in features.refusal((VERSION, 27, UPGRADE))
    features.update((VERSION, 26, UPGRADE))


def controller(number: int, features: tuple[FeatureRange, ...]) -> RegisterControllerRecord:
    return RegisterControllerRecord(number, Uuid(bytes(16)), (), features)


def test_every_controller_must_support_it_and_have_registered() -> None:
    """A voter that has not registered blocks updates, once registration exists at all."""
    features = Features(SmallCluster(metadata_version=25))
    features.quorum.voter_ids = (100, 101)
    assert "controller 101 has not registered" in features.refusal((VERSION, 26, UPGRADE))
    features.cluster.apply([controller(101, ())])
    assert "controller 101 does not support" in features.refusal((VERSION, 26, UPGRADE))
    features.cluster.apply([controller(101, supported_features())])
    features.update((VERSION, 26, UPGRADE))

    before_registration = Features(SmallCluster(metadata_version=14))
    before_registration.quorum.voter_ids = (100, 101)
    before_registration.update((VERSION, 15, UPGRADE))


def test_kraft_version_is_left_to_raft() -> None:
    features = Features()
    assert features.update(("kraft.version", 1, UPGRADE)) == ()
    assert features.quorum.asked == [(1, False)]
    features.quorum.kraft_version = 1
    features.quorum.asked.clear()
    assert features.update(("kraft.version", 1, UPGRADE)) == ()
    assert features.quorum.asked == []
    assert "never lowered" in features.refusal(("kraft.version", 0, SAFE))
    old = Features(SmallCluster(metadata_version=20))
    assert "needs metadata.version 21" in old.refusal(("kraft.version", 1, UPGRADE))


def test_a_feature_named_twice_is_refused() -> None:
    with pytest.raises(ControllerError) as caught:
        Features().update(("group.version", 1, UPGRADE), ("group.version", 1, UPGRADE))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_version_0_says_downgrade_with_a_flag() -> None:
    features = Features()

    def request(allow_downgrade: bool) -> UpdateFeaturesRequest:
        update = FeatureUpdateKey(
            feature="group.version", max_version_level=0, allow_downgrade=allow_downgrade
        )
        return UpdateFeaturesRequest(feature_updates=[update])

    with pytest.raises(ControllerError):
        features.control.update_features(request(False), Caller(api_version=0))
    result = features.control.update_features(request(True), Caller(api_version=0))
    assert result.records == (FeatureLevelRecord("group.version", 0),)


def test_turning_elr_on_makes_one_minimum_of_many() -> None:
    """KRF-119: the cluster's value is written if missing, brokers' own go, in the same batch."""
    cluster = SmallCluster(elr=False, static={MIN_ISR: "2"})
    broker = ConfigResourceType.BROKER
    cluster.apply(
        [
            ConfigRecord(broker, "1", MIN_ISR, "3"),
            ConfigRecord(broker, "2", "num.io.threads", "3"),
            ConfigRecord(ConfigResourceType.TOPIC, "1", MIN_ISR, "3"),
        ]
    )
    assert Features(cluster).update((ELR, 1, UPGRADE)) == (
        FeatureLevelRecord(ELR, 1),
        ConfigRecord(broker, "", MIN_ISR, "2"),
        ConfigRecord(broker, "1", MIN_ISR, None),
    )


def test_turning_elr_on_keeps_the_clusters_own_minimum_and_has_a_default() -> None:
    broker = ConfigResourceType.BROKER
    cluster = SmallCluster(elr=False)
    cluster.apply([ConfigRecord(broker, "", MIN_ISR, "3")])
    assert Features(cluster).update((ELR, 1, UPGRADE)) == (FeatureLevelRecord(ELR, 1),)
    records = Features(SmallCluster(elr=False)).update((ELR, 1, UPGRADE))
    assert records[1:] == (ConfigRecord(broker, "", MIN_ISR, "1"),)


def test_turning_elr_off_forgets_who_was_eligible() -> None:
    features = Features()
    assert features.update((ELR, 0, SAFE)) == (FeatureLevelRecord(ELR, 0), ClearElrRecord())
    assert features.level(ELR) is None
