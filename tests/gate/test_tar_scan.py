"""Archives on their way in: device nodes never pass, and nothing that two readers could take differently."""

import bz2
import contextlib
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.core.tar_scan import EXTENDED_LIMIT_BYTES, TarScan

Entry = tuple[bytes, bytes]
BLOCK = 512
END = bytes(2 * BLOCK)


def header(kind: bytes, size: int | bytes = 0, name: bytes = b"n", magic: bytes = b"ustar\x0000") -> bytes:
    """One header block, its check sum right."""
    number = size if isinstance(size, bytes) else b"%011o\0" % size
    block = bytearray(BLOCK)
    block[: len(name)] = name
    block[100:136] = b"0000644\0" + b"0000000\0" * 2 + number
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[257 : 257 + len(magic)] = magic
    return checked(block)


def checked(block: bytearray) -> bytes:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    while len(b"%d" % length) + len(key) + len(value) + 3 != length:
        length = len(b"%d" % length) + len(key) + len(value) + 3
    return b"%d %b=%b\n" % (length, key, value)


def extended(*records: bytes, kind: bytes = b"x") -> bytes:
    data = b"".join(records)
    return header(kind, len(data)) + padded(data)


def verdict(archive: bytes, step: int = 1 << 20) -> tuple[str, ...]:
    """The codes, whatever the pieces are."""
    scan = TarScan()
    for start in range(0, len(archive), step):
        if (denial := scan.feed(memoryview(archive)[start : start + step])) is not None:
            return denial.codes()
    denial = scan.finish()
    return () if denial is None else denial.codes()


DEVICE, COMPRESSED, MALFORMED = ("archive-device",), ("archive-compressed",), ("archive-malformed",)
FILE = header(b"0", 5) + padded(b"hello")
NODE = header(b"3") + END
SPARSE = bytearray(header(b"S", 512, magic=b"ustar  \0"))
SPARSE[482] = 1
MAP = bytes(504) + b"\1" + bytes(7)
LAST_MAP = bytes(BLOCK)

CASES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "nothing": (b"", ()),
    "only the end": (END, ()),
    "one zero block": (bytes(BLOCK), ()),
    "no end": (FILE, ()),
    "padded to a tape record": (FILE + bytes(20 * BLOCK), ()),
    "character device": (NODE, DEVICE),
    "block device": (header(b"4"), DEVICE),
    "device after a file": (FILE + NODE, DEVICE),
    "device with a size": (header(b"3", 5) + FILE, DEVICE),
    "device in the data of a file": (header(b"0", 512) + NODE[:BLOCK] + END, ()),
    "device behind a long name": (header(b"L", 600) + padded(b"x" * 600) + NODE, DEVICE),
    "device behind an extended header": (extended(record(b"path", b"x")) + NODE, DEVICE),
    "device where a size is made 0": (extended(record(b"size", b"0")) + header(b"0", 512) + NODE, DEVICE),
    "device where a size is made shorter": (
        extended(record(b"size", b"512")) + header(b"0") + NODE[:BLOCK] + END, (),
    ),
    "device after a sparse map": (checked(SPARSE) + MAP + LAST_MAP + bytes(BLOCK) + NODE, DEVICE),
    "device as sparse data": (checked(SPARSE) + LAST_MAP + NODE[:BLOCK] + END, ()),
    "device as a sparse map": (checked(SPARSE) + NODE[:BLOCK] + bytes(BLOCK) + END, ()),
    "sparse of another program": (header(b"S", 512) + bytes(BLOCK) + END, MALFORMED),
    "sparse with another size": (extended(record(b"size", b"0")) + checked(SPARSE) + END, MALFORMED),
    "sparse map cut": (checked(SPARSE), MALFORMED),
    "links, directories, pipes": (b"".join(map(header, (b"1", b"2", b"5", b"6"))) + END, ()),
    "directory with a size": (header(b"5", 512) + NODE, MALFORMED),
    "link with a size": (header(b"1", 1), MALFORMED),
    "contiguous file": (header(b"7", 1) + padded(b"x") + END, ()),
    "old file": (header(b"\0", 5, magic=b"") + padded(b"hello") + END, ()),
    "old directory": (header(b"\0", 0, name=b"d/", magic=b"") + END, ()),
    "old directory with data": (header(b"\0", 512, name=b"d/", magic=b"") + NODE, MALFORMED),
    "old file renamed": (extended(record(b"path", b"d/")) + header(b"\0", 512) + NODE, MALFORMED),
    "old file renamed by GNU": (header(b"L", 2) + padded(b"d/") + header(b"\0", 512) + NODE, MALFORMED),
    "old file without a name": (header(b"\0", 512, name=b"") + NODE, MALFORMED),
    "unknown type": (header(b"Z"), MALFORMED),
    "multi-volume": (header(b"M"), MALFORMED),
    "bad check sum": (FILE[:5] + b"x" + FILE[6:], MALFORMED),
    "text": (b"this is no archive" * 100, MALFORMED),
    "short": (b"tar", MALFORMED),
    "cut in a header": (FILE + FILE[:100], MALFORMED),
    "cut in data": (FILE[:-1], MALFORMED),
    "something after the end": (FILE + END + NODE, MALFORMED),
    "something after one zero block": (FILE + bytes(BLOCK) + NODE, MALFORMED),
    "something late after the end": (END + bytes(100_000) + b"x", MALFORMED),
    "binary size": (header(b"0", b"\x80" + bytes(10) + b"\5") + padded(b"hello") + NODE, DEVICE),
    "negative size": (header(b"0", b"\xff" * 12), MALFORMED),
    "enormous size": (header(b"0", b"\x80" + b"\xff" * 11), MALFORMED),
    "size in letters": (header(b"0", b"0000000000x\0"), MALFORMED),
    "size in two parts": (header(b"0", b"0001\0 00001\0"), MALFORMED),
    "size with spaces": (header(b"0", b"         5 \0") + padded(b"hello") + NODE, DEVICE),
    "size missing": (header(b"0", b" " * 12) + NODE, DEVICE),
    "extended size twice": (extended(record(b"size", b"1"), record(b"size", b"2")), MALFORMED),
    "extended size signed": (extended(record(b"size", b"+1")), MALFORMED),
    "extended size empty": (extended(record(b"size", b"")), MALFORMED),
    "extended twice": (extended() + extended() + FILE, MALFORMED),
    "extended then global": (extended() + extended(kind=b"g") + FILE, MALFORMED),
    "extended and then the end": (extended() + END, MALFORMED),
    "extended and then nothing": (extended(), MALFORMED),
    "extended then long name": (extended() + header(b"L", 2) + padded(b"x\0") + FILE + END, ()),
    "extended cut": (header(b"x", 100), MALFORMED),
    "extended is no record": (header(b"x", 5) + padded(b"hello"), MALFORMED),
    "extended record too long": (header(b"x", 8) + padded(b"99 a=bc\n"), MALFORMED),
    "extended record too short": (header(b"x", 8) + padded(b"2 a=bcd\n"), MALFORMED),
    "extended record without end": (header(b"x", 6) + padded(b"6 a=bc"), MALFORMED),
    "extended record without key": (header(b"x", 6) + padded(b"6 =ab\n"), MALFORMED),
    "global comment": (extended(record(b"comment", b"x"), kind=b"g") + FILE + END, ()),
    "global size": (extended(record(b"size", b"0"), kind=b"g") + FILE, MALFORMED),
    "extended too long": (header(b"x", EXTENDED_LIMIT_BYTES + 1), MALFORMED),
    "long name too long": (header(b"K", EXTENDED_LIMIT_BYTES + 1), MALFORMED),
    "gzip": (gzip.compress(NODE), COMPRESSED),
    "bzip2": (bz2.compress(NODE), COMPRESSED),
    "xz": (lzma.compress(NODE), COMPRESSED),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(600), COMPRESSED),
    "zstd with a skippable frame": (b"\x53\x2a\x4d\x18" + bytes(600), COMPRESSED),
    "a name that reads as compressed": (header(b"0", 0, name=b"BZhello"), COMPRESSED),
}  # fmt: skip


@pytest.mark.parametrize("step", [1, 7, 511, 512, 513, 1 << 20])
@pytest.mark.parametrize("name", CASES)
def test_every_form_in_every_piece_size(name: str, step: int) -> None:
    archive, expected = CASES[name]
    if step < 511 and len(archive) > 50_000:
        return
    assert verdict(archive, step) == expected


def test_a_denial_stays() -> None:
    scan = TarScan()
    denial = scan.feed(NODE)
    assert denial is not None
    assert scan.feed(FILE) is denial
    assert scan.finish() is denial


def test_the_daemon_never_gets_the_whole_of_an_offending_header() -> None:
    scan = TarScan()
    archive = FILE + NODE
    passed = 0
    for start in range(0, len(archive), 100):
        if scan.feed(archive[start : start + 100]) is not None:
            break
        passed = start + 100
    assert passed < len(FILE) + BLOCK


def written(kind: int, *, devices: bool, seed: int) -> bytes:
    """An archive as Python's tarfile writes it: all types, long and odd names, large attributes."""
    rng = random.Random(seed)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        types = [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
        for number in range(20):
            info = tarfile.TarInfo(f"{'directory/' * rng.randrange(30)}ü{number}")
            info.type = rng.choice(types)
            info.linkname = "target" * rng.randrange(40)
            info.mtime = rng.randrange(1 << 40)
            data = rng.randbytes(rng.choice([0, 1, 511, 512, 513, 100_000])) if info.isreg() else b""
            info.size = len(data)
            if kind == tarfile.PAX_FORMAT:
                info.pax_headers = {"SCHILY.xattr.user.x": "x" * rng.randrange(2000)}
            archive.addfile(info, io.BytesIO(data))
        if devices:
            info = tarfile.TarInfo("node")
            info.type = rng.choice([tarfile.CHRTYPE, tarfile.BLKTYPE])
            archive.addfile(info)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("seed", range(5))
def test_real_archives(kind: int, seed: int) -> None:
    assert verdict(written(kind, devices=False, seed=seed), 1000 + seed) == ()
    assert verdict(written(kind, devices=True, seed=seed), 1000 + seed) == DEVICE


def members(archive: bytes) -> Iterator[tarfile.TarInfo]:
    """As far as Python reads it: it refuses some sparse maps, whose contents mean nothing to the scan."""
    with (
        contextlib.suppress(tarfile.TarError),
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as found,
    ):
        yield from found


@given(st.lists(st.sampled_from([case for case, _ in CASES.values() if len(case) < 20_000]), max_size=5))
def test_whatever_is_put_together_no_other_reader_finds_a_device_in_what_passes(parts: list[bytes]) -> None:
    archive = b"".join(parts)
    if verdict(archive) == ():
        assert not any(member.isdev() and not member.isfifo() for member in members(archive or END))


@given(st.binary(max_size=3000), st.integers(1, 3000))
def test_any_bytes_get_the_same_answer_in_any_pieces(data: bytes, step: int) -> None:
    assert verdict(data, step) == verdict(data)
    assert verdict(FILE + data, step) == verdict(FILE + data)
