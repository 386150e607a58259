"""Bodies that wait share one repo's room."""

from dataclasses import dataclass

from gate.held import HeldBody


@dataclass
class Room:
    held_bytes: int = 0
    held_limit: int = 10


def test_bodies_share_the_room() -> None:
    room = Room()
    one, two = HeldBody(room), HeldBody(room)
    assert one.add([b"ab", memoryview(b"cdef")])
    assert two.add([b"1234"])
    assert not two.add([b"5"])
    assert two.add([])
    assert (bytes(one), bytes(two), room.held_bytes) == (b"abcdef", b"1234", 10)
    one.drop()
    one.drop()
    assert (bytes(one), room.held_bytes) == (b"", 4)
    assert two.add([b"5"])
