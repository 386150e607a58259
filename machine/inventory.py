"""The inventory on disk: written by setup, read by whoever must know what the machine has."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from base.errors import MalformedError, NotFoundError
from base.files import make_directory, read_bytes, write_atomic
from base.layout import Layout
from machine.core.inventory import SETUP_HINT, Inventory, encode, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The inventory, its bytes as stored, and when setup last found it to be true."""

    inventory: Inventory
    raw: bytes
    checked_at: datetime

    def age(self, now: datetime) -> timedelta:
        """How long ago the machine was looked at; never negative."""
        return max(now - self.checked_at, timedelta(0))


def load(layout: Layout) -> Stored:
    """The machine's inventory.

    Raises:
        NotFoundError: setup has not been run.
        MalformedError: the file is damaged, or a newer program wrote it.
        AccessError: it cannot be read.
    """
    try:
        raw = read_bytes(layout.inventory)
    except NotFoundError as exc:
        raise NotFoundError(
            f"{layout.inventory} does not exist", hint="run 'renet setup' on the machine"
        ) from exc
    checked_at = datetime.fromtimestamp(int(layout.inventory.stat().st_mtime), UTC)
    try:
        return Stored(inventory=parse(raw), raw=raw, checked_at=checked_at)
    except MalformedError as exc:
        raise MalformedError(f"{layout.inventory}: {exc.message}", hint=SETUP_HINT) from exc


def save(layout: Layout, found: Inventory) -> Inventory:
    """Write what was found and return what is stored.

    A machine that is as it was keeps its date, so that the same machine gives the same file; that it was
    looked at again is the file's modification time.

    Raises:
        AccessError: it cannot be written.
    """
    make_directory(layout.inventory.parent)
    checked_ns = int(found.detected_at.timestamp()) * 10**9
    try:
        before = load(layout).inventory
    except (NotFoundError, MalformedError):
        pass
    else:
        if found.same_machine(before):
            found = replace(found, detected_at=before.detected_at)
    write_atomic(layout.inventory, encode(found), modified_ns=checked_ns)
    return found
