"""The topics of a workload: made when a key is first used, by whoever needs it first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import trio

from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.outcomes import AfterCommit, ClientError, Effect, Meaning
from kraftpy.verify.workloads.port import WorkloadAdmin

__all__ = ["Topics"]


class Topics:
    def __init__(
        self,
        admin: WorkloadAdmin,
        keys: KeySpace,
        *,
        replication_factor: int,
        configs: Mapping[str, str],
    ) -> None:
        self._admin = admin
        self._keys = keys
        self._replication_factor = replication_factor
        self._configs = dict(configs)
        self._known: dict[str, None] = {}
        self._locks: dict[str, trio.Lock] = {}

    @property
    def known_keys(self) -> list[int]:
        """Of all topics that were made."""
        return sorted(key for topic in self._known for key in self._keys.keys_of(topic))

    async def ensure(self, keys: Iterable[int]) -> None:
        """Make the topics of these keys, where they are not. Nothing else was done before."""
        for name in self._keys.topics(keys):
            if name in self._known:
                continue
            async with self._locks.setdefault(name, trio.Lock()):
                if name not in self._known:
                    await self._create(name)
                    self._known[name] = None

    async def _create(self, name: str) -> None:
        try:
            await self._admin.create_topic(
                name, self._keys.partitions_per_topic, self._replication_factor, self._configs
            )
        except ClientError as failure:
            if failure.name != "TOPIC_ALREADY_EXISTS":
                meaning = Meaning(Effect.FAIL, AfterCommit.ABORT)
                raise ClientError("NO_TOPIC", meaning, str(failure)) from failure

    async def describe(self, keys: Iterable[int]) -> dict[int, Any]:
        """Leader, leader epoch and ISR of each key, as far as brokers tell."""
        found: dict[int, Any] = {}
        chosen = list(keys)
        for name in self._keys.topics(chosen):
            view = await self._admin.describe_topic(name)
            for key in chosen:
                where = self._keys.where(key)
                if view is None or where.topic != name or where.partition not in view.partitions:
                    continue
                each = view.partitions[where.partition]
                found[key] = {
                    "leader": each.leader_id,
                    "leader_epoch": each.leader_epoch,
                    "replicas": list(each.replicas),
                    "isr": list(each.isr),
                }
        return found
