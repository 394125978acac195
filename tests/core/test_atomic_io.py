"""Whole or not at all: real files, real kills, real disks that are full."""

import contextlib
import errno
import json
import os
import platform
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


@contextlib.contextmanager
def file_size_limit(size: int):
    """Every write beyond `size` bytes fails, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def ordinary_user():
    """Rights do not bind root, so a test that runs as root becomes nobody for a moment."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)


def killed_while(path: Path, code: str) -> None:
    """Run code in a child that kills itself with SIGKILL in the middle of a write."""
    script = f"import os, signal\nfrom clozeworks.core import atomic_io as atomic\npath = {str(path)!r}\n{code}"
    child = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL, child.stderr


def test_writes_and_replaces(tmp_path: Path):
    path = tmp_path / "a" / "b" / "data.bin"
    atomic_io.write_bytes(path, b"one")
    atomic_io.write_bytes(str(path), memoryview(b"two"))
    assert path.read_bytes() == b"two"
    assert names(path.parent) == ["data.bin"]


def test_text_and_json_are_utf8_as_given(tmp_path: Path):
    atomic_io.write_text(tmp_path / "t", "词\r\nend")
    assert (tmp_path / "t").read_bytes() == "词\r\nend".encode()
    atomic_io.write_json(tmp_path / "j", {"词": [1, 2.5, None]})
    assert "词" in (tmp_path / "j").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "j").read_text(encoding="utf-8")) == {"词": [1, 2.5, None]}


def test_json_without_a_json_value_keeps_the_old_file(tmp_path: Path):
    atomic_io.write_json(tmp_path / "j", 1)
    with pytest.raises(ValueError, match="JSON"):
        atomic_io.write_json(tmp_path / "j", float("nan"))
    assert (tmp_path / "j").read_text() == "1\n"


def test_permissions_follow_the_umask(tmp_path: Path):
    before = os.umask(0o022)
    try:
        atomic_io.write_bytes(tmp_path / "file", b"")
        with atomic_io.directory(tmp_path / "dir") as new:
            (new / "private").touch(mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "dir").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "dir" / "private").stat().st_mode & 0o777 == 0o644


def test_a_link_keeps_pointing(tmp_path: Path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    atomic_io.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_failed_write_keeps_the_old_file(tmp_path: Path):
    path = tmp_path / "data"
    atomic_io.write_bytes(path, b"old")
    with file_size_limit(1000), pytest.raises(InputError, match="too large") as caught:
        atomic_io.write_bytes(path, bytes(5000))
    assert caught.value.where == str(path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["data"]


def test_a_full_disk_is_a_sentence(tmp_path: Path):
    sentence = "the disk is full; room is needed; free some space"
    with pytest.raises(InputError, match=sentence), atomic_io.directory(tmp_path / "out"):
        Path("/dev/full").write_bytes(b"x")
    assert names(tmp_path) == []


def test_a_full_disk_told_by_a_rust_library_is_the_same_sentence(tmp_path: Path):
    with pytest.raises(InputError, match="the disk is full"), atomic_io.directory(tmp_path / "out"):
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")
    with pytest.raises(RuntimeError, match="os error 2"), atomic_io.directory(tmp_path / "out"):
        raise RuntimeError("I/O error: No such file or directory (os error 2)")


def test_a_full_disk_keeps_the_old_file(tmp_path: Path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        atomic_io.write_bytes(tmp_path / "data", b"old")
        with pytest.raises(InputError, match="the disk is full"):
            atomic_io.write_bytes(tmp_path / "data", bytes(1 << 20))
        assert (tmp_path / "data").read_bytes() == b"old"
        assert names(tmp_path) == ["data"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_read_only_file_system_is_a_sentence(tmp_path: Path):
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a read-only disk needs root")
    try:
        with pytest.raises(InputError, match="read-only file system"):
            atomic_io.write_bytes(tmp_path / "data", b"new")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_missing_right_is_a_sentence(tmp_path: Path):
    tmp_path.chmod(0o555)
    with ordinary_user(), pytest.raises(InputError, match="permission denied"):
        atomic_io.write_text(tmp_path / "deep" / "file", "x")
    with ordinary_user(), pytest.raises(InputError, match="permission denied"), atomic_io.directory(tmp_path / "dir"):
        pass


def test_an_error_about_another_file_is_not_explained_away(tmp_path: Path):
    (tmp_path / "other").mkdir()
    with pytest.raises(IsADirectoryError), atomic_io.directory(tmp_path / "out"):
        (tmp_path / "other").read_text()


def test_things_in_the_way(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "inside").write_text("x")
    with pytest.raises(InputError, match="a directory is needed"):
        atomic_io.write_text(tmp_path / "file" / "below", "y")
    with pytest.raises(InputError, match="a directory is needed"):
        atomic_io.write_text(tmp_path / "file" / "below" / "further", "y")
    with pytest.raises(InputError, match="a file is needed"):
        atomic_io.write_text(tmp_path / "full", "y")
    with pytest.raises(InputError, match="a directory is needed"), atomic_io.directory(tmp_path / "file"):
        pass
    reached = False
    with pytest.raises(InputError, match="exists already"), atomic_io.directory(tmp_path / "full"):
        reached = True
    assert not reached  # refused before the work, not after it
    assert names(tmp_path) == ["file", "full"]


def test_a_file_appears_at_the_end(tmp_path: Path):
    atomic_io.write_text(tmp_path / "out", "old")
    with atomic_io.file(tmp_path / "out") as new:
        new.unlink()  # a library that writes a file of its own
        new.write_text("new")
        new.chmod(0o600)
        assert (tmp_path / "out").read_text() == "old"
    assert (tmp_path / "out").read_text() == "new"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o666 & ~umask(tmp_path)
    with pytest.raises(KeyError), atomic_io.file(tmp_path / "out") as new:
        new.write_text("part")
        raise KeyError
    assert (tmp_path / "out").read_text() == "new"
    with pytest.raises(InputError, match="a directory stands in the way"), atomic_io.file(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def umask(place: Path) -> int:
    probe = place / "probe"
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    return 0o666 & ~mode


def test_directory_appears_at_the_end(tmp_path: Path):
    path = tmp_path / "deep" / "out"
    with atomic_io.directory(path) as new:
        (new / "sub").mkdir()
        (new / "sub" / "a").write_text("a")
        assert not path.exists()
        assert new.parent == path.parent
    assert (path / "sub" / "a").read_text() == "a"
    assert names(path.parent) == ["out"]


def test_bytes_are_on_the_disk_before_they_have_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Else a power failure leaves a name without its content: every file, then its directory, then the rename."""
    flushed: set[int] = set()  # inodes, which a rename keeps
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def content(path: Path) -> set[int]:
        return {each.stat().st_ino for each in (path, *path.rglob("*"))}

    def watch(move):
        def watched(source: Path, target: Path) -> None:
            assert content(source) <= flushed
            move(source, target)
            flushed.clear()

        return watched

    monkeypatch.setattr(os, "fsync", lambda handle: (fsync(handle), flushed.add(os.fstat(handle).st_ino)))
    monkeypatch.setattr(os, "rename", watch(rename))
    monkeypatch.setattr(os, "replace", watch(replace))
    with atomic_io.directory(tmp_path / "saved") as new:
        (new / "inner").mkdir()
        for name in ("a", "inner/b"):
            (new / name).write_text(name)
    assert tmp_path.stat().st_ino in flushed, "the new name"
    atomic_io.write_text(tmp_path / "file", "text")
    assert tmp_path.stat().st_ino in flushed


def test_an_empty_directory_is_taken_over(tmp_path: Path):
    (tmp_path / "out").mkdir()
    with atomic_io.directory(tmp_path / "out") as new:
        (new / "a").write_text("a")
    assert names(tmp_path / "out") == ["a"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failed_directory_leaves_nothing(tmp_path: Path, failure: type[BaseException]):
    with pytest.raises(failure), atomic_io.directory(tmp_path / "out") as new:
        (new / "a").write_text("a")
        raise failure
    assert names(tmp_path) == []


def test_overwrite_replaces_all_or_nothing(tmp_path: Path):
    path = tmp_path / "out"
    with atomic_io.directory(path) as new:
        (new / "old").write_text("old")
    with pytest.raises(RuntimeError), atomic_io.directory(path, overwrite=True) as new:
        raise RuntimeError
    assert names(path) == ["old"]
    with atomic_io.directory(path, overwrite=True) as new:
        (new / "new").write_text("new")
    assert names(path) == ["new"]
    assert names(tmp_path) == ["out"]


def test_two_who_write_the_same_directory(tmp_path: Path):
    with pytest.raises(InputError, match="exists already"), atomic_io.directory(tmp_path / "out") as second:
        (second / "second").write_text("2")
        with atomic_io.directory(tmp_path / "out") as first:
            (first / "first").write_text("1")
    assert names(tmp_path / "out") == ["first"]
    assert names(tmp_path) == ["out"]


def test_leftovers_of_the_dead_are_swept_and_those_of_the_living_stay(tmp_path: Path):
    killed_while(tmp_path / "a", "with atomic.directory(path) as new: os.kill(os.getpid(), signal.SIGKILL)")
    assert len(names(tmp_path)) == 1
    with atomic_io.directory(tmp_path / "b") as mine:
        atomic_io.write_text(tmp_path / "c", "c")
        assert names(tmp_path) == [mine.name, "c"]
    assert names(tmp_path) == ["b", "c"]


def test_leftovers_under_this_very_pid_are_swept(tmp_path: Path):
    """A container gives the same pid to each of its lives."""
    with atomic_io.directory(tmp_path / "a") as new:
        stale = tmp_path / new.name.replace(".a.", ".b.")
    stale.mkdir()
    atomic_io.sweep(tmp_path)
    assert names(tmp_path) == ["a"]


def test_leftovers_of_another_host_stay(tmp_path: Path):
    other = tmp_path / ".a.cw-00000000-999999999-00000000.new"
    other.mkdir()
    atomic_io.sweep(tmp_path)
    assert other.exists()


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path: Path):
    path = tmp_path / "out"
    with atomic_io.directory(path) as new:
        (new / "old").write_text("old")
    killed_while(
        path,
        "rename = os.rename\n"
        "def dying(a, b):\n"
        "    rename(a, b)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.rename = dying\n"
        "with atomic.directory(path, overwrite=True): pass\n",
    )
    assert not path.exists()
    atomic_io.sweep(tmp_path)
    assert names(path) == ["old"]
    assert names(tmp_path) == ["out"]


def test_a_reader_never_sees_a_part(tmp_path: Path):
    path = tmp_path / "data"
    atomic_io.write_bytes(path, bytes([0]) * 100_000)
    writer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\nfrom clozeworks.core import atomic_io as atomic\n"
            "for i in range(200): atomic.write_bytes(sys.argv[1], bytes([i % 256]) * 100_000)",
            str(path),
        ]
    )
    seen = set()
    while writer.poll() is None:
        content = path.read_bytes()
        assert len(content) == 100_000
        assert len(set(content)) == 1
        seen.add(content[0])
    assert writer.returncode == 0
    assert len(seen) > 1


def failing(number: int):
    """A call that a broken disk refuses."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_broken_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    atomic_io.write_text(tmp_path / "file", "old")
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(InputError, match="the disk reports an error"):
        atomic_io.write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_what_cannot_be_cleaned_up_does_not_hide_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as broken, pytest.raises(InputError, match="the disk is full"):
        broken.setattr(atomic_io, "_remove", failing(errno.EROFS))
        broken.setattr(os, "fsync", failing(errno.ENOSPC))
        atomic_io.write_text(tmp_path / "file", "new")
    assert len(names(tmp_path)) == 1
    atomic_io.write_text(tmp_path / "file", "new")
    assert names(tmp_path) == ["file"]


def test_a_lock_that_cannot_be_written_is_a_sentence(tmp_path: Path):
    with file_size_limit(0), pytest.raises(InputError, match="too large"), atomic_io.hold_lock(tmp_path, "works here"):
        pass
    with atomic_io.hold_lock(tmp_path, "works here"):
        assert atomic_io.holder(tmp_path) == f"{os.getpid()} on {platform.node()}"


def test_devices_and_pipes_are_not_replaced(tmp_path: Path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(InputError, match="a device, a pipe or a socket; a file or directory is needed"):
            atomic_io.write_text(path, "text")
        with pytest.raises(InputError, match="a device, a pipe or a socket"), atomic_io.directory(path):
            pass
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", "link"}
