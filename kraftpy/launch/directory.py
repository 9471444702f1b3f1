"""The directory of a cluster: who uses it, and what cluster it holds.

`cluster.json` is written before anything is formatted, so that a start that was interrupted is
continued with the same cluster id and the same nodes. A lock is held for as long as the cluster is
used; the system drops it with its holder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from kraftpy.launch.errors import LaunchError
from kraftpy.launch.plan import BROKER, COMBINED, CONTROLLER, Shape
from kraftpy.log.checkpoints import AtomicFile, read_text
from kraftpy.log.log_directory import LOCK_FILE, make_path
from kraftpy.protocol.ids import format_uuid, random_uuid
from kraftpy.world import FileLock, World

__all__ = ["ClusterDirectory", "open_directory"]

IDENTITY_FILE: Final = "cluster.json"
_ALLOWED_ROLES: Final = (BROKER, CONTROLLER, COMBINED)


@dataclass(frozen=True, slots=True)
class ClusterDirectory:
    path: str
    cluster_id: str
    shape: Shape
    _lock: FileLock

    def release(self) -> None:
        """Let others use it. Idempotent."""
        self._lock.release()


async def open_directory(
    world: World, path: str, *, wanted: Shape | None, otherwise: Shape
) -> ClusterDirectory:
    """Take the directory, which is made if there is none. Raises LaunchError.

    A new cluster gets the `wanted` shape, or `otherwise` if none is. One that is there already
    keeps its own, and another must not be wanted.
    """
    try:
        await make_path(world.disk, path)
        lock = world.disk.lock(f"{path}/{LOCK_FILE}")
    except BlockingIOError:
        raise LaunchError(
            f"{path} is in use by a cluster that runs; stop that one, or use another directory"
        ) from None
    except OSError as error:
        raise LaunchError(f"{path} can't be used: {error.strerror or error}") from error
    try:
        cluster_id, shape = await _identity(world, path, wanted, otherwise)
        return ClusterDirectory(path, cluster_id, shape, lock)
    except BaseException:
        lock.release()
        raise


async def _identity(
    world: World, path: str, wanted: Shape | None, otherwise: Shape
) -> tuple[str, Shape]:
    file_path = f"{path}/{IDENTITY_FILE}"
    text = await read_text(world.disk, file_path)
    if text is None:
        shape = otherwise if wanted is None else wanted
        cluster_id = format_uuid(random_uuid(world.rng.stream("uuid")))
        await AtomicFile(world.disk, file_path).replace(_format(cluster_id, shape))
        return cluster_id, shape
    try:
        cluster_id, shape = _parse(text)
    except (ValueError, KeyError, TypeError) as error:
        raise LaunchError(
            f"{file_path} can't be understood ({error}); restore it, or use another directory"
        ) from error
    if wanted is not None and wanted != shape:
        raise LaunchError(
            f"{path} holds a cluster of {_describe(shape)}, not of {_describe(wanted)}; leave the "
            "number of nodes out to go on with it, or use another directory"
        )
    return cluster_id, shape


def _format(cluster_id: str, shape: Shape) -> str:
    nodes = [{"id": node_id, "roles": list(roles)} for node_id, roles in shape.items()]
    return json.dumps({"cluster_id": cluster_id, "nodes": nodes}, indent=2) + "\n"


def _parse(text: str) -> tuple[str, Shape]:
    found = json.loads(text)
    shape = {int(node["id"]): tuple(node["roles"]) for node in found["nodes"]}
    if not shape or any(roles not in _ALLOWED_ROLES for roles in shape.values()):
        raise ValueError("the nodes have no roles")
    return str(found["cluster_id"]), shape


def _describe(shape: Shape) -> str:
    roles = list(shape.values())
    names = ((COMBINED, "node"), (BROKER, "broker"), (CONTROLLER, "controller"))
    counts = [(roles.count(each), name) for each, name in names]
    return " and ".join(f"{count} {name}{'s' * (count > 1)}" for count, name in counts if count)
