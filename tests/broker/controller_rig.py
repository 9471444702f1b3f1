"""A real controller on a log of one node that commits at once, asked without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from metadata.controller_core_rig import NODE_ID, WHOLE_BOOTSTRAP
from metadata.controller_core_rig import Rig as LogOfOne

from kraftpy.metadata.controller.effects import Answer, Refuse
from kraftpy.metadata.controller.result import Caller
from kraftpy.metadata.controller.runner import ControllerRunner
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.features import supported_features
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema import k63_broker_heartbeat as k63
from kraftpy.raft.effects import ProposalRefused
from kraftpy.world import World

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


class _Quorum:
    def __init__(self, log: LogOfOne, nursery: trio.Nursery) -> None:
        self._log = log
        self._nursery = nursery

    @property
    def log_end_offset(self) -> int:
        return self._log.end_offset

    def last_heard_ms(self, node_id: int) -> int | None:
        return None

    def propose(self, epoch: int, values: tuple[bytes, ...]) -> int | ProposalRefused:
        base_offset = self._log.end_offset
        self._log.append_values(epoch, values)
        self._nursery.start_soon(self._commit)
        return base_offset

    async def _commit(self) -> None:
        self._log.commit()

    def resign(self, epoch: int) -> None:
        raise AssertionError("there is nobody else to lead")


class RealController:
    """`loader` publishes to whoever is installed; `channel` is a way to ask."""

    def __init__(self, log: LogOfOne, runner: ControllerRunner) -> None:
        self.log = log
        self.loader = log.loader
        self._runner = runner
        # While False, nobody is answered.
        self.is_reachable = True

    @property
    def image(self) -> MetadataImage:
        return self.loader.image

    async def ask(self, message: Any) -> Any:
        if not self.is_reachable:
            await trio.sleep_forever()
        key = message.KEY
        if isinstance(message, k63.BrokerHeartbeatRequest):
            self._runner.note_contact(message.broker_id, message.broker_epoch)
        done = trio.Event()
        outcome: list[Answer | Refuse] = []

        def reply(answer: Answer | Refuse) -> None:
            outcome.append(answer)
            done.set()

        self._runner.submit(message, Caller(api_version=API[key].max_version), reply)
        await done.wait()
        [answer] = outcome
        if isinstance(answer, Answer):
            return answer.response
        return API[key].response_class(error_code=answer.code)

    def channel(self) -> Any:
        return _Channel(self)


class _Channel:
    """Looks like a ControllerChannel."""

    def __init__(self, controller: RealController) -> None:
        self._controller = controller
        self.asked: list[Any] = []

    async def request(
        self, message: Any, *, timeout_ms: int | None = None, max_version: int | None = None
    ) -> Any:
        from kraftpy.broker.controller_channel import ControllerUnreachable

        self.asked.append(message)
        with trio.move_on_after(1e9 if timeout_ms is None else timeout_ms / 1000):
            return await self._controller.ask(message)
        raise ControllerUnreachable("it does not answer")

    def close(self) -> None:
        pass


@asynccontextmanager
async def real_controller(world: World) -> AsyncIterator[RealController]:
    settings = ControllerSettings(
        NODE_ID, CLUSTER_ID, features=supported_features(), metadata_max_idle_interval_ms=500
    )
    log = LogOfOne(bootstrap=WHOLE_BOOTSTRAP, settings=settings, is_whole=True)
    async with trio.open_nursery() as nursery:
        runner = ControllerRunner(log.controller, _Quorum(log, nursery), world)
        nursery.start_soon(runner.run)
        log.append_control(1)
        log.commit()
        runner.leader_changed(1, NODE_ID)
        controller = RealController(log, runner)
        while not controller.image.features:  # noqa: ASYNC110 (it says so to publishers only)
            await trio.sleep(0.001)
        yield controller
        nursery.cancel_scope.cancel()


def no_error(answer: Any) -> Any:
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
    return answer
