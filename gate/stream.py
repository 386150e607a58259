"""One socket of the gate: receives into a shared buffer, with back-pressure and half-close.

A client connection and a connection to the daemon are both a `Stream`; two partners couple their flow: when
one cannot be written to, the other is not read, so that memory never grows with what passes through.

Facts this rests on (measured): buffers allocated per read make the allocator trim and regrow its heap on
bulk transfers, one static buffer does not; uvloop writes at once when nothing is queued, and with a high
water mark of 0 it pauses the protocol exactly when something is left over.
"""

import asyncio
import select
import socket
from abc import ABC, abstractmethod
from typing import Final, cast

from gate.http.body import Piece

BUFFER_BYTES = 256 * 1024
_SPARES = 16
_SALVAGE_BYTES = 4 * 1024 * 1024


class BufferPool:
    """The receive buffer that all sockets of one event loop share.

    A read is handled before the next one begins, so one buffer is enough, except where a partial write
    still refers to it: then the writer takes it (`detach`) and gives it back (`attach`) when it is written.
    """

    __slots__ = ("_spare", "current")

    def __init__(self) -> None:
        self.current = memoryview(bytearray(BUFFER_BYTES))
        self._spare: list[memoryview] = []

    def detach(self) -> memoryview:
        """The current buffer, which belongs to the caller from now on."""
        taken = self.current
        self.current = self._spare.pop() if self._spare else memoryview(bytearray(BUFFER_BYTES))
        return taken

    def attach(self, buffer: memoryview) -> None:
        """Give a detached buffer back."""
        if len(self._spare) < _SPARES:
            self._spare.append(buffer)


class Stop:
    """Why a stream is not read now. Plain integers: they are tested at every request (an IntFlag is 2 µs)."""

    PARTNER: Final = 1  # its partner cannot take more
    HOLD: Final = 2  # what it holds must be used first


class Stream(asyncio.BufferedProtocol, ABC):
    """What both kinds of connection share. Subclasses override `received`, `ended`, `lost` and `crashed`."""

    __slots__ = (
        "_held",
        "_pool",
        "_stops",
        "closing",
        "eof_received_",
        "eof_sent",
        "partner",
        "transport",
        "write_paused",
    )

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._held: memoryview | None = None
        self._stops = 0
        self.transport: asyncio.Transport | None = None
        self.partner: Stream | None = None
        self.write_paused = False
        self.eof_sent = False
        self.eof_received_ = False
        self.closing = False

    # What subclasses do

    @abstractmethod
    def received(self, view: memoryview) -> None:
        """Handle bytes; `view` is valid until this returns."""

    @abstractmethod
    def ended(self) -> bool:
        """Handle the other side's end of sending; False closes the socket."""

    @abstractmethod
    def lost(self, error: Exception | None) -> None:
        """Handle the end of the socket."""

    def partner_gone(self) -> None:
        """Handle the end of the partner's socket in a two-way stream."""
        self.close()

    @abstractmethod
    def crashed(self, error: Exception) -> None:
        """Handle an error of ours: close this connection and its partner, and nothing else."""

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the event loop's protocol
        """The shared buffer."""
        return self._pool.current

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrived."""
        try:
            self.received(self._pool.current[:nbytes])
        except Exception as error:  # noqa: BLE001 - one connection's trouble must stay with it
            self.crashed(error)

    def eof_received(self) -> bool:
        """The other side will not send any more."""
        self.eof_received_ = True
        try:
            return self.ended()
        except Exception as error:  # noqa: BLE001 - as above
            self.crashed(error)
            return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone (its descriptor is still open during this call)."""
        try:
            self.lost(exc)
        except Exception as error:  # noqa: BLE001 - as above
            self.crashed(error)
        finally:
            self.closing = True
            self.transport = None
            self._held = None
            partner, self.partner = self.partner, None
            if partner is not None and partner.partner is self:
                partner.unpair()

    def pause_writing(self) -> None:
        """Something is left over: read no more from the partner."""
        self.write_paused = True
        if self.partner is not None:
            self.partner.stop_reading(Stop.PARTNER)

    def resume_writing(self) -> None:
        """Everything is written: read from the partner again."""
        self.write_paused = False
        if self._held is not None:
            self._pool.attach(self._held)
            self._held = None
        if self.partner is not None:
            self.partner.start_reading(Stop.PARTNER)

    # What the gate calls

    def pair(self, partner: "Stream") -> None:
        """Couple the flow of both streams."""
        self.partner = partner
        partner.partner = self
        for one, other in ((self, partner), (partner, self)):
            if one.write_paused:
                other.stop_reading(Stop.PARTNER)
            else:
                other.start_reading(Stop.PARTNER)

    def unpair(self) -> None:
        """Undo the coupling, on both sides."""
        partner, self.partner = self.partner, None
        self.start_reading(Stop.PARTNER)
        if partner is not None and partner.partner is self:
            partner.unpair()

    def stop_reading(self, reason: int) -> None:
        """Read nothing until every reason is gone."""
        if not self._stops and self.transport is not None and not self.eof_received_:
            self.transport.pause_reading()
        self._stops |= reason

    def start_reading(self, reason: int) -> None:
        """Drop one reason."""
        if not self._stops & reason:
            return
        self._stops &= ~reason
        if not self._stops and self.transport is not None and not self.eof_received_:
            self.transport.resume_reading()

    def send(self, data: bytes) -> None:
        """Write bytes that nobody changes."""
        if self.transport is not None and not self.eof_sent and not self.transport.is_closing():
            self.transport.write(data)

    def relay(self, *pieces: Piece) -> None:
        """Write pieces that may lie in the shared buffer."""
        if self.transport is None or self.eof_sent or self.transport.is_closing():
            return
        if self.write_paused:
            self.transport.writelines([bytes(piece) for piece in pieces])
            return
        if len(pieces) == 1:
            self.transport.write(pieces[0])
        else:
            self.transport.writelines(pieces)
        self._keep_left_over()

    def _keep_left_over(self) -> None:
        """The event loop may still refer to the shared buffer: it is this stream's until that is written."""
        if self.write_paused and self._held is None:
            self._held = self._pool.detach()

    def finish_sending(self) -> None:
        """Half-close (shutdown) once everything is written; reading goes on."""
        if self.transport is not None and not self.eof_sent and not self.transport.is_closing():
            self.eof_sent = True
            self.transport.write_eof()

    def close(self) -> None:
        """Close once everything is written; nothing more is read."""
        self.closing = True
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close now; what is not written is dropped."""
        self.closing = True
        if self.transport is not None:
            self.transport.abort()

    def hung_up(self) -> bool:
        """Whether the other side has closed its socket for good, and not only its sending half (poll(2))."""
        if self.transport is None:
            return True
        descriptor = self.transport.get_extra_info("socket").fileno()
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, 0)
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


def salvage(sock: socket.socket) -> tuple[bytes, bool]:
    """What a socket still holds after a failed write, and whether its end was reached.

    A daemon that answers early and closes makes the next write fail; the answer is in the receive queue by
    then, and the event loop would throw it away.
    """
    parts: list[bytes] = []
    size = 0
    while size < _SALVAGE_BYTES:
        try:
            part = sock.recv(BUFFER_BYTES, socket.MSG_DONTWAIT)
        except OSError:
            return b"".join(parts), False
        if not part:
            return b"".join(parts), True
        parts.append(part)
        size += len(part)
    return b"".join(parts), False
