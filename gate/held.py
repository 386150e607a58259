"""Bodies that must be whole before they are decided on."""

from typing import Protocol

from gate.http.body import Piece


class Room(Protocol):
    """What the connections of one repo share."""

    held_bytes: int
    held_limit: int


class HeldBody:
    """One such body, as far as it is there. All of a repo's share the room, however many clients it has."""

    __slots__ = ("_data", "_room")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._data = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def add(self, pieces: list[Piece]) -> bool:
        """Keep more of it; False when there is no room left."""
        size = sum(map(len, pieces))
        if self._room.held_bytes + size > self._room.held_limit:
            return False
        self._room.held_bytes += size
        for piece in pieces:  # many tiny chunks must not cost more than what is in them
            self._data += piece
        return True

    def drop(self) -> None:
        """Make room."""
        self._room.held_bytes -= len(self._data)
        self._data.clear()
