"""Telling systemd how a service is doing, in the protocol of sd_notify(3), without its library."""

import contextlib
import os
import socket

VARIABLE = "NOTIFY_SOCKET"


def notify(state: str) -> bool:
    """Send a state such as `READY=1`, `STOPPING=1` or `STATUS=…` to whoever supervises us.

    Returns:
        Whether it was sent; False without a supervisor, and when it cannot be reached, which must not stop
        us.
    """
    address = os.environ.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return False
    target = "\0" + address[1:] if address.startswith("@") else address
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link,
    ):
        link.connect(target)
        link.sendall(state.encode())
        return True
    return False
