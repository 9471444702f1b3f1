"""Where a lake's files are: a local directory, or whatever file system Hadoop knows.

`create` is the one operation that everything rests on: a file appears whole or not at all, and
of several writers of one name a single one succeeds. A local file system has that in link(2),
HDFS in a rename that refuses to replace. Object stores have neither by way of Hadoop: a lake there
may have one writer at a time.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlparse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HadoopFiles", "LakeFiles", "LocalFiles", "open_files"]


class LakeFiles(Protocol):
    """Paths are relative to the lake's root, with slashes."""

    @property
    def root(self) -> str:
        """As Spark takes it."""
        ...

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder, sorted; nothing if it isn't there."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """All files below a folder, by their path from there."""
        ...

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """False if there is one already."""
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Whether or not there is one; readers see the old one or the new one, whole."""
        ...

    def move(self, source: str, target: str) -> None:
        """A move that was made already is no failure."""
        ...

    def delete(self, path: str) -> None:
        """A file or a folder with all in it, if it is there."""
        ...


class LocalFiles:
    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def root(self) -> str:
        return self._root.as_uri()

    def names(self, folder: str) -> list[str]:
        path = self._root / folder
        return sorted(each.name for each in path.iterdir()) if path.is_dir() else []

    def sizes(self, folder: str) -> dict[str, int]:
        path = self._root / folder
        found = sorted(each for each in path.rglob("*") if each.is_file())
        return {each.relative_to(path).as_posix(): each.stat().st_size for each in found}

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def create(self, path: str, content: bytes) -> bool:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            fresh.write_bytes(content)
            os.link(fresh, target)
        except FileExistsError:
            return False
        finally:
            fresh.unlink(missing_ok=True)
        return True

    def replace(self, path: str, content: bytes) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # A checksum that Hadoop has left there would be that of the old one.
        target.with_name(f".{target.name}.crc").unlink(missing_ok=True)
        fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        fresh.write_bytes(content)
        fresh.rename(target)

    def move(self, source: str, target: str) -> None:
        goal = self._root / target
        goal.parent.mkdir(parents=True, exist_ok=True)
        try:
            (self._root / source).rename(goal)
        except FileNotFoundError:
            if not goal.exists():
                raise

    def delete(self, path: str) -> None:
        target = self._root / path
        if target.is_dir():
            shutil.rmtree(target, onerror=_unless_gone)
        else:
            target.unlink(missing_ok=True)


def _unless_gone(_function: object, _path: str, failure: Any) -> None:
    """Two may delete the same folder."""
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]


class HadoopFiles:
    """By the classes of the driver's JVM, which know the cluster's file systems and keys."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        context: Any = spark.sparkContext._jsc
        gateway: Any = spark.sparkContext._gateway
        self._jvm = jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        configuration = context.hadoopConfiguration()
        self._root = root.rstrip("/")
        uri = jvm.java.net.URI.create(self._root)
        self._files = self._hadoop.FileSystem.get(uri, configuration)
        # It alone has the rename that does not replace.
        self._context = self._hadoop.FileContext.getFileContext(uri, configuration)
        self._no_options = gateway.new_array(self._hadoop.Options.Rename, 0)
        self._overwriting = gateway.new_array(self._hadoop.Options.Rename, 1)
        self._overwriting[0] = self._hadoop.Options.Rename.OVERWRITE

    @property
    def root(self) -> str:
        return self._root

    def names(self, folder: str) -> list[str]:
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        return sorted(str(each.getPath().getName()) for each in self._files.listStatus(path))

    def sizes(self, folder: str) -> dict[str, int]:
        path = self._path(folder)
        if not self._files.exists(path):
            return {}
        base = self._files.makeQualified(path).toUri().getPath().rstrip("/") + "/"
        found: dict[str, int] = {}
        listing = self._files.listFiles(path, True)
        while listing.hasNext():
            each = listing.next()
            found[str(each.getPath().toUri().getPath()).removeprefix(base)] = each.getLen()
        return dict(sorted(found.items()))

    def read(self, path: str) -> bytes:
        with _translated():
            stream = self._files.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def create(self, path: str, content: bytes) -> bool:
        target = self._path(path)
        if self._files.exists(target):
            return False
        self._files.mkdirs(target.getParent())
        fresh = self._write(path, content)
        try:
            with _translated():
                self._context.rename(fresh, target, self._no_options)
        except FileExistsError:
            self._files.delete(fresh, False)
            return False
        return True

    def replace(self, path: str, content: bytes) -> None:
        target = self._path(path)
        self._files.mkdirs(target.getParent())
        self._context.rename(self._write(path, content), target, self._overwriting)

    def _write(self, path: str, content: bytes) -> Any:
        """A file beside the wanted one."""
        fresh = self._path(f"{path}.{uuid.uuid4().hex}.fresh")
        stream = self._files.create(fresh, False)
        try:
            stream.write(content)
        finally:
            stream.close()
        return fresh

    def move(self, source: str, target: str) -> None:
        start, goal = self._path(source), self._path(target)
        self._files.mkdirs(goal.getParent())
        # Some file systems say no, and some raise.
        with suppress(FileNotFoundError), _translated():
            if self._files.rename(start, goal):
                return
        if self._files.exists(start) or not self._files.exists(goal):
            raise FileNotFoundError(f"{start} can't be moved to {goal}")

    def delete(self, path: str) -> None:
        self._files.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(f"{self._root}/{path}")


@contextmanager
def _translated() -> Iterator[None]:
    """Failures of Java's that have a name in Python."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        name = error.java_exception.getClass().getSimpleName()
        if name == "FileAlreadyExistsException":
            raise FileExistsError(str(error.java_exception.getMessage())) from None
        if name == "FileNotFoundException":
            raise FileNotFoundError(str(error.java_exception.getMessage())) from None
        raise


def open_files(spark: SparkSession, path: str) -> LakeFiles:
    """By the path's scheme. Without one, it is what the cluster takes a plain path for."""
    parsed = urlparse(path)
    if parsed.scheme == "file":
        return LocalFiles(Path(parsed.path))
    if parsed.scheme:
        return HadoopFiles(spark, path)
    context: Any = spark.sparkContext._jsc
    default = str(context.hadoopConfiguration().get("fs.defaultFS", "file:///"))
    if urlparse(default).scheme == "file":
        return LocalFiles(Path(path))
    return HadoopFiles(spark, default.rstrip("/") + str(Path("/") / path))
