import stat
from pathlib import Path

import pytest

from base.errors import AccessError, MalformedError, NotFoundError
from base.files import discard_unfinished, make_directory, read_bytes, remove_durably, write_atomic


def _names(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()]


def test_write_replaces_whole_files_and_leaves_no_temporary(tmp_path: Path) -> None:
    target = tmp_path / "doc.json"
    write_atomic(target, b"old")
    before = target.stat().st_ino
    write_atomic(target, b"new" * 100_000, mode=0o600)
    assert target.read_bytes() == b"new" * 100_000
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.stat().st_ino != before, "an in-place write could be read half-written"
    assert _names(tmp_path) == ["doc.json"]


def test_the_modification_time_can_be_given_to_the_nanosecond(tmp_path: Path) -> None:
    target = tmp_path / "doc.json"
    for modified_ns in (1_700_000_000_000_000_001, 1_700_000_000_000_000_002):
        write_atomic(target, b"same", modified_ns=modified_ns)
        assert target.stat().st_mtime_ns == modified_ns


def test_a_reader_with_the_old_file_open_keeps_it_whole(tmp_path: Path) -> None:
    target = tmp_path / "doc.json"
    write_atomic(target, b"old")
    with target.open("rb") as reader:
        write_atomic(target, b"newer")
        assert reader.read() == b"old"


def test_a_failed_replacement_keeps_the_old_file_and_cleans_up(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    (target / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_atomic(target, b"data")
    assert _names(tmp_path) == ["directory"]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        write_atomic(tmp_path / "absent" / "doc", b"")
    assert "absent" in caught.value.message


def test_reads_are_bounded_and_name_the_file(tmp_path: Path) -> None:
    target = tmp_path / "doc"
    target.write_bytes(b"12345")
    assert read_bytes(target, limit=5) == b"12345"
    with pytest.raises(MalformedError):
        read_bytes(target, limit=4)
    with pytest.raises(NotFoundError):
        read_bytes(tmp_path / "absent")
    with pytest.raises(AccessError):
        read_bytes(tmp_path)


def test_removing_twice_is_fine(tmp_path: Path) -> None:
    target = tmp_path / "doc"
    target.write_bytes(b"")
    remove_durably(target)
    remove_durably(target)
    assert not target.exists()


def test_directories_get_exactly_their_mode(tmp_path: Path) -> None:
    target = tmp_path / "a" / "private"
    make_directory(target, mode=0o700)
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    target.chmod(0o777)
    make_directory(target, mode=0o700)
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(AccessError):
        make_directory(file / "below")


def test_unfinished_files_are_discarded(tmp_path: Path) -> None:
    keep = [tmp_path / name for name in ("a", ".a.tmp", ".a.0123456789ab.tmp.more", ".b.0123456789ab.tmp")]
    for path in (*keep, tmp_path / ".a.0123456789ab.tmp"):
        path.write_text("x")
    discard_unfinished(tmp_path / "a")
    assert sorted(tmp_path.iterdir()) == sorted(keep)
    discard_unfinished(tmp_path / "absent" / "a")
