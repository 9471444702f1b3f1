"""`kraftpy storage` on real files, and Apache Kafka's opinion of what it wrote."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path

import pytest
import trio
from support.kafka_jars import run_java

from kraftpy.cli.main import main
from kraftpy.metadata.bootstrap import read_bootstrap
from kraftpy.metadata.records import UserScramCredentialRecord
from kraftpy.world.real_disk import RealDisk

Captured = pytest.CaptureFixture[str]
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
STORAGE_TOOL = "kafka.tools.StorageTool"
DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def write_config(folder: Path, *, node_id: int = 1) -> str:
    path = folder / "server.properties"
    path.write_text(
        f"""
        process.roles=broker,controller
        node.id={node_id}
        controller.listener.names=CONTROLLER
        listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
        controller.quorum.bootstrap.servers=127.0.0.1:9093
        log.dirs={folder}/a,{folder}/b
        """
    )
    return str(path)


def format_words(config: str, *more: str) -> list[str]:
    return ["storage", "format", "--config", config, "--cluster-id", CLUSTER, *more]


def properties(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_format_and_info(tmp_path: Path, capsys: Captured) -> None:
    config = write_config(tmp_path)
    assert main(["storage", "info", "--config", config]) == 1
    assert f"problem: {tmp_path}/a not formatted" in capsys.readouterr().out
    assert main(format_words(config, "--standalone")) == 0
    shown = capsys.readouterr().out
    assert f"formatted {tmp_path}/a with metadata.version 4.3-IV0" in shown
    assert "voters: 1" in shown
    assert main(["storage", "info", "--config", config, "--format", "json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["problems"] == []
    assert [each["is_metadata_directory"] for each in info["directories"]] == [True, False]
    for each in info["directories"]:
        meta = properties(Path(each["path"]) / "meta.properties")
        assert meta == {
            "version": "1",
            "cluster.id": CLUSTER,
            "node.id": "1",
            "directory.id": each["directory.id"],
        }
    assert (tmp_path / "a" / SNAPSHOT).exists()
    assert main(["storage", "info", "--config", config]) == 0
    assert f"{tmp_path}/b (data): formatted" in capsys.readouterr().out


def test_every_refusal_says_what_to_do(tmp_path: Path, capsys: Captured) -> None:
    config = write_config(tmp_path)
    assert main(format_words(config)) == 1
    assert "--standalone" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
    main(format_words(config, "--standalone"))
    capsys.readouterr()
    assert main(format_words(config, "--standalone")) == 1
    assert "--ignore-formatted" in capsys.readouterr().err
    assert main(format_words(config, "-s", "-g")) == 0
    assert "is formatted already" in capsys.readouterr().out
    assert main(format_words(config, "-s", "-g", "--set", "node.id=2")) == 1
    assert "correct node.id" in capsys.readouterr().err
    assert main([*format_words(config, "-s", "-g"), "--cluster-id", "x"]) == 1
    assert f"--cluster-id {CLUSTER} --ignore-formatted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["-I", "1@a:1"], 2, "write id@host:port:directory-id"),
        (["-s", "--feature", "group.version=1", "--feature", "group.version=0"], 2, "two levels"),
        (["-s", "--set", "node.id=x"], 2, "the configuration is wrong"),
        (["-s", "--release-version", "1.0"], 1, "known are 3.3-IV3"),
    ],
)
def test_wrong_wishes(
    tmp_path: Path, capsys: Captured, words: list[str], code: int, complaint: str
) -> None:
    assert main(format_words(write_config(tmp_path), *words)) == code
    assert complaint in capsys.readouterr().err


def test_wrong_command_lines(tmp_path: Path, capsys: Captured) -> None:
    assert main(["storage", "info", "--config", f"{tmp_path}/none"]) == 2
    assert "can't be read" in capsys.readouterr().err
    for words in (["format", "-c", "x"], ["format", "-c", "x", "-t", "y", "-f", "z"]):
        with pytest.raises(SystemExit) as stopped:
            main(["storage", *words])
        assert stopped.value.code == 2


def test_a_disk_that_can_not_be_written(tmp_path: Path, capsys: Captured) -> None:
    config = write_config(tmp_path)
    (tmp_path / "b").write_text("a file where a directory belongs")
    assert main(format_words(config, "-s")) == 1
    assert f"{tmp_path}/b can't be read" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_relative_directories(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path)
    assert main(format_words(config, "-s", "--set", "log.dirs=data,./data/")) == 0
    assert capsys.readouterr().out.count("formatted ") == 1
    assert (tmp_path / "data" / SNAPSHOT).exists()


def test_versions(capsys: Captured) -> None:
    assert main(["storage", "version-mapping", "--release-version", "4.0"]) == 0
    assert "metadata.version=25 (4.0-IV3)" in capsys.readouterr().out
    assert main(["storage", "version-mapping", "--format", "json"]) == 0
    levels = json.loads(capsys.readouterr().out)["levels"]
    assert (levels["metadata.version"], levels["kraft.version"]) == (30, 1)
    assert main(["storage", "version-mapping", "-r", "9.9"]) == 2
    words = ["storage", "feature-dependencies", "--feature"]
    assert main([*words, "eligible.leader.replicas.version=1"]) == 0
    assert "it needs metadata.version 23" in capsys.readouterr().out
    assert main([*words, "metadata.version=30", "--feature", "group.version=1"]) == 0
    assert capsys.readouterr().out.count("needs nothing") == 2
    for wrong in ("metadata.version=31", "group.version=2", "no.version=1"):
        assert main([*words, wrong]) == 2


def test_first_users(tmp_path: Path, capsys: Captured) -> None:
    """The figures are those of RFC 7677, section 3; the password itself is nowhere."""
    config = write_config(tmp_path)
    option = 'SCRAM-SHA-256=[name=user,iterations=4096,salt="W22ZaJ0SNY7soEsUEjb6gQ==",'
    assert main(format_words(config, "-s", "-S", option + "password=pencil]")) == 0
    [*_, user] = trio.run(read_bootstrap, RealDisk(), f"{tmp_path}/a") or ()
    assert isinstance(user, UserScramCredentialRecord)
    assert (user.name, user.mechanism, user.iterations) == ("user", 1, 4096)
    assert b64encode(user.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert b64encode(user.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    assert b"pencil" not in (tmp_path / "a" / "bootstrap.checkpoint").read_bytes()


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("SCRAM-MD5=[name=a,password=secret]", "write SCRAM-SHA-256=["),
        ("SCRAM-SHA-256=[password=secret]", "name is missing"),
        ("SCRAM-SHA-256=[name=a]", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=secret,saltedpassword=YQ==]", "either password"),
        ("SCRAM-SHA-256=[name=a,password=]", "the password is empty"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=16385]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,salt=?]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==]", "needs the salt"),
        ("SCRAM-SHA-256=[name=a,name=b,password=secret]", "given twice"),
        ("SCRAM-SHA-256=[name=a,colour=b,password=secret]", "colour is not known"),
        ('SCRAM-SHA-256=[name="a,password=secret]', "can't be read"),
    ],
)
def test_users_that_can_not_be(
    tmp_path: Path, capsys: Captured, option: str, complaint: str
) -> None:
    assert main(format_words(write_config(tmp_path), "-s", "-S", option)) == 2
    shown = capsys.readouterr().err
    assert complaint in shown
    assert "=secret," not in shown


def test_users_need_a_release_that_knows_them(tmp_path: Path, capsys: Captured) -> None:
    words = ["-s", "-r", "3.5-IV1", "-S", "SCRAM-SHA-512=[name=a,password=b]"]
    assert main(format_words(write_config(tmp_path), *words)) == 1
    assert "needs metadata.version 11" in capsys.readouterr().err
    assert main(format_words(write_config(tmp_path), *words[:1], "-r", "3.5", *words[3:])) == 0


@pytest.mark.java
def test_kafka_takes_our_directories_for_formatted_ones(tmp_path: Path, capsys: Captured) -> None:
    """meta.properties says what Kafka's storage tool writes, and its tools read what we wrote."""
    config = write_config(tmp_path)
    assert main(format_words(config, "-s")) == 0
    capsys.readouterr()
    info = run_java(STORAGE_TOOL, "info", "-c", config)
    assert info.returncode == 0, info.stdout
    assert f"cluster.id={CLUSTER}" in info.stdout
    dump = run_java(DUMP_TOOL, "--deep-iteration", "--files", f"{tmp_path}/a/{SNAPSHOT}")
    kinds = re.findall(r"(SnapshotHeader|KRaftVersion|KRaftVoters|SnapshotFooter) \{", dump.stdout)
    assert kinds == ["SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"]
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    done = run_java(STORAGE_TOOL, "format", "-c", write_config(theirs), "-t", CLUSTER, "-s")
    assert done.returncode == 0, done.stdout
    for name in ("a", "b"):
        ours = properties(tmp_path / name / "meta.properties")
        other = properties(theirs / name / "meta.properties")
        assert ours | {"directory.id": ""} == other | {"directory.id": ""}
        assert len(ours["directory.id"]) == len(other["directory.id"]) == 22
    assert main(["storage", "info", "--config", str(theirs / "server.properties")]) == 0
    sizes = [(folder / "a" / SNAPSHOT).stat().st_size for folder in (tmp_path, theirs)]
    assert sizes[0] == sizes[1]
