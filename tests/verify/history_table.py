"""Histories as tables: the language of the golden files, one line for each operation.

A case begins in the first column: an anomaly, what is expected of it, and a title.

    A3 bad       the anomaly is found, and fails the run
    A3 seen      it is found, and does not fail the run
    A3 miss      it is not found, nor anything else that fails the run
    A3 absent    it is not found; something else may be

Lines below are indented:

    0 send +1:5@0 +1:6@?           process 0 sent 5 to key 1, at offset 0, and 6, nobody knows where
    1 txn -1:0=5,1=6;2:0=7 +2:8@3  it polled offsets 0 and 1 of key 1 and 0 of key 2, then sent
    1 poll -                       a poll that brought nothing
    0 send! ..., 0 send? ...       it failed; its outcome is unknown
    2 ( poll -1:0=5                it begins here,
    2 )                            and ends here
    0 commit {1:[3,"a"]} group=g   other kinds have a literal without spaces,
    0 committed [1] -> {1:None}    perhaps with the answer behind an arrow
    0 txn! +1:5@0 tx rebalance=[1] error=FENCED outcome=aborted
                                   tx: a transaction. Other words are metadata
    ... -1:0=5~epoch=3~from=2/7    what goes with a record
    @ 30                           the clock is at 30 s; every event takes one
    nemesis start name=kill        or: end name=kill effects=["leader"]
    expect acks="1"                fields of Expectations
    log 1/2* hw=5 0=5 7.3:1=6#4 7.3:2C
                                   the audit of key 1 on node 2, which leads: value 5 at offset 0; 6
                                   at 1, of producer 7 in epoch 3, by operation 4; a commit marker
                                   (A: abort). `^2` is the leader epoch, `!9` the CRC
    decided 7.3=commit             what a coordinator decided
    stored g/1=5                   a committed offset in the audit
    replicas 1=3                   how many replicas the audit should have found
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kraftpy.verify.checkers import (
    Audit,
    AuditedBatch,
    AuditedRecord,
    Expectations,
    ReplicaAudit,
)
from kraftpy.verify.history import History, Invocation, Recorder

BATCH = re.compile(
    r"(?:(?P<id>\d+)\.(?P<epoch>\d+):)?(?P<offset>\d+)"
    r"(?:=(?P<value>\d+)(?:#(?P<operation>\d+))?|(?P<marker>[CA]))"
    r"(?:\^(?P<leader>\d+))?(?:!(?P<crc>\d+))?"
)
SECOND = 10**9


@dataclass
class Case:
    anomaly: str
    expected: str
    title: str
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.anomaly} {self.expected}: {self.title}"


def cases(text: str) -> list[Case]:
    found: list[Case] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            anomaly, expected, title = line.split(maxsplit=2)
            if expected not in ("bad", "seen", "miss", "absent"):
                raise ValueError(f"nothing is expected here: {line!r}")
            found.append(Case(anomaly, expected, title))
        else:
            found[-1].lines.append(line.strip())
    return found


def literal(text: str) -> Any:
    """A Python literal, or the word itself."""
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def records(text: str) -> dict[int, list[Any]]:
    """`1:0=5,1=6;2:0=7`"""
    found: dict[int, list[Any]] = {}
    for part in text.split(";") if text else ():
        key, _, listed = part.partition(":")
        found[int(key)] = [record(each) for each in listed.split(",")]
    return found


def record(text: str) -> list[Any]:
    """`0=5~epoch=3`"""
    place, *extras = text.split("~")
    offset, _, value = place.partition("=")
    return [int(offset), int(value), *with_extras(extras)]


def with_extras(words: list[str]) -> list[dict[str, Any]]:
    extras: dict[str, Any] = {name: literal(value) for name, value in pairs(words)}
    if "from" in extras:
        extras["from"] = [int(number) for number in extras["from"].split("/")]
    return [extras] if words else []


def micro(word: str) -> tuple[list[Any], list[Any]]:
    """What was asked and what was answered."""
    if word.startswith("-"):
        return ["poll"], ["poll", records(word[1:])]
    place, *extras = word[1:].split("~")
    key, value, offset = re.split("[:@]", place)
    told = [None if offset == "?" else int(offset), int(value), *with_extras(extras)]
    return ["send", int(key), int(value)], ["send", int(key), told]


class Table:
    """Carries out the lines of a case."""

    def __init__(self, lines: list[str]) -> None:
        self.now_ns = 0
        self.recorder = Recorder(self.tick)
        self.opened: dict[int, tuple[Invocation, str, Any, dict[str, Any]]] = {}
        self.expectations = Expectations(vacuity=None)
        self.replicas: list[ReplicaAudit] = []
        self.audit = Audit()
        for line in lines:
            self.take(line.split())
        if self.replicas or self.audit != Audit():
            self.audit = replace(self.audit, replicas=tuple(self.replicas))
            self.expectations = replace(self.expectations, audit=self.audit)

    def tick(self) -> int:
        self.now_ns += SECOND
        return self.now_ns

    @property
    def history(self) -> History:
        return self.recorder.history({})

    def take(self, words: list[str]) -> None:
        head = words[0]
        if head == "@":
            self.now_ns = int(words[1]) * SECOND
        elif head == "nemesis":
            self.recorder.nemesis({"phase": words[1], **self.named(words[2:])})
        elif head == "expect":
            self.expectations = replace(self.expectations, **self.named(words[1:]))
        elif head == "log":
            self.replicas.append(replica(words[1:]))
        elif head in ("decided", "stored", "replicas"):
            self.audit = with_fact(self.audit, head, words[1])
        else:
            self.operate(int(head), words[1:])

    @staticmethod
    def named(words: list[str]) -> dict[str, Any]:
        return {name: literal(value) for name, value in pairs(words)}

    def operate(self, process: int, words: list[str]) -> None:
        if words[0] == ")":
            self.complete(process)
            return
        only_begin = words[0] == "("
        kind, *rest = words[1:] if only_begin else words
        type_ = {"!": "fail", "?": "info"}.get(kind[-1], "ok")
        asked, answered, meta, completion = self.read(rest)
        invocation = self.recorder.invoke(process, kind.rstrip("!?"), asked, meta)
        self.opened[process] = (invocation, type_, answered, completion)
        if not only_begin:
            self.complete(process)

    def complete(self, process: int) -> None:
        invocation, type_, answered, completion = self.opened.pop(process)
        if type_ == "ok":
            invocation.ok(answered, **completion)
        else:
            end = invocation.fail if type_ == "fail" else invocation.info
            end(completion.pop("error", "ERROR"), answered, **completion)

    def read(self, words: list[str]) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
        asked: Any = None
        answered: Any = None
        meta: dict[str, Any] = {}
        completion: dict[str, Any] = {}
        for place, word in enumerate(words):
            if word[0] in "+-" and word != "->":
                one, other = micro(word)
                asked, answered = [*(asked or ()), one], [*(answered or ()), other]
            elif word[0] in "[{":
                answered = literal_eval(word)
                if place == 0 or words[place - 1] != "->":
                    asked = answered
            elif word == "tx":
                meta["transactional"] = True
            elif word == "final":
                meta["final"] = True
            elif "=" in word:
                self.remember(word, meta, completion)
        return asked, answered, meta, completion

    @staticmethod
    def remember(word: str, meta: dict[str, Any], completion: dict[str, Any]) -> None:
        name, _, value = word.partition("=")
        if name in ("rebalance", "assigned"):
            kind = "revoked" if name == "rebalance" else name
            completion["rebalance"] = [{"kind": kind, "keys": literal_eval(value)}]
        elif name == "error":
            completion["error"] = value
        else:
            meta[name] = literal(value)


def replica(words: list[str]) -> ReplicaAudit:
    key, node = words[0].rstrip("*").split("/")
    options = {name: int(value) for name, value in pairs(words[1:]) if name in ("hw", "start")}
    batches = tuple(batch(word) for word in words[1:] if word.split("=")[0] not in options)
    end = batches[-1].last_offset + 1 if batches else 0
    watermark = options.get("hw", end)
    start = options.get("start", 0)
    leads = words[0].endswith("*")
    return ReplicaAudit(int(key), int(node), start, watermark, watermark, end, batches, leads)


def pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, _, value = word.partition("=")
        yield name, value


def batch(word: str) -> AuditedBatch:
    found = BATCH.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r} is no batch")
    offset = int(found["offset"])
    held: tuple[AuditedRecord, ...] = ()
    if found["value"] is not None:
        operation = None if found["operation"] is None else int(found["operation"])
        held = (AuditedRecord(offset, int(found["value"]), operation),)
    return AuditedBatch(
        offset,
        offset,
        int(found["leader"] or 0),
        int(found["crc"] or found["value"] or 0),
        {"C": "commit", "A": "abort", None: "data"}[found["marker"]],  # type: ignore[arg-type]
        int(found["id"] or -1),
        int(found["epoch"] or -1),
        is_transactional=found["id"] is not None,
        records=held,
    )


def with_fact(audit: Audit, head: str, word: str) -> Audit:
    name, _, value = word.partition("=")
    if head == "decided":
        producer_id, epoch = map(int, name.split("."))
        return replace(audit, decisions={**audit.decisions, (producer_id, epoch): value})
    if head == "stored":
        group, key = name.split("/")
        offsets = {**audit.committed_offsets, (group, int(key)): int(value)}
        return replace(audit, committed_offsets=offsets)
    return replace(audit, expected_replicas={**audit.expected_replicas, int(name): int(value)})
