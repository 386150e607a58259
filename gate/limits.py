"""The transport's bounds: sizes in bytes, times in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one gate.

    Args:
        connections: most open client connections per repo; one more is answered 503.
        head_s: time for a started request head to be complete.
        body_s: time for a body that must be whole before it is decided.
        linger_s: time for a client to read an early answer while the rest of its request is dropped.
        grace_s: time that open requests get when the gate or a repo is closed.
        inspected_body_bytes: largest body that is decided on (design section 5).
        held_bodies_bytes: most bytes of such bodies that a repo's connections hold together.
        dropped_body_bytes: largest body that is read and dropped where none belongs.
        pipelined_bytes: most bytes of later requests that are held while one is answered.
        rewritten_answer_bytes: largest JSON answer that warnings are added to.
    """

    connections: int = 2048
    head_s: float = 30.0
    body_s: float = 60.0
    linger_s: float = 10.0
    grace_s: float = 5.0
    inspected_body_bytes: int = 1024 * 1024
    held_bodies_bytes: int = 64 * 1024 * 1024
    dropped_body_bytes: int = 1024 * 1024
    pipelined_bytes: int = 128 * 1024
    rewritten_answer_bytes: int = 1024 * 1024
