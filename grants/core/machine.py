"""What names mean on the machine now, and what has become of a grant. Pure but for the probe it is given."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from base.errors import RdcError
from cdi.core.catalog import Catalog
from cdi.core.names import QualifiedName
from cdi.core.pin import Pin, drift, pin
from cdi.core.resolve import Probe, ResolveError, resolve
from grants.core.model import Grant, Sharing, format_instant


class GrantState(StrEnum):
    """What has become of a grant; only `LIVE` lets a container have the device."""

    LIVE = "live"
    EXPIRED = "expired"
    DRIFTED = "drifted"
    UNRESOLVABLE = "unresolvable"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantStatus:
    """A grant's state with the reason in words (empty when live).

    `near` are names that the machine has and that look like the one it no longer has.
    """

    state: GrantState
    reason: str = ""
    near: tuple[QualifiedName, ...] = ()

    @property
    def live(self) -> bool:
        """True when the device may be given to a container."""
        return self.state is GrantState.LIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a name means now: its pin, or why it means nothing."""

    pin: Pin | None
    reason: str = ""


class MachineView:
    """The machine's names at one moment; each is looked at once.

    For one decision, transaction or listing: an instance that outlives it would tell of device nodes as they
    were.
    """

    __slots__ = ("_drifts", "_meanings", "_probe", "catalog")

    def __init__(self, catalog: Catalog, probe: Probe) -> None:
        self.catalog = catalog
        self._probe = probe
        self._drifts: dict[tuple[QualifiedName, int], tuple[Pin, str | None]] = {}
        self._meanings: dict[QualifiedName, Meaning] = {}

    def meaning(self, name: QualifiedName) -> Meaning:
        """What the name means now."""
        found = self._meanings.get(name)
        if found is None:
            found = self._meanings[name] = self._look(name)
        return found

    def status(self, grant: Grant, now: datetime) -> GrantStatus:
        """What has become of the grant; an end that has come is told before anything else."""
        if not grant.live(now):
            ended = format_instant(grant.expires_at or now)
            return GrantStatus(state=GrantState.EXPIRED, reason=f"expired at {ended}")
        meaning = self.meaning(grant.device)
        if meaning.pin is None:
            near = () if grant.device in self.catalog.devices else self.catalog.near(grant.device)
            return GrantStatus(state=GrantState.UNRESOLVABLE, reason=meaning.reason, near=near)
        reason = self._drift(grant, meaning.pin)
        if reason is not None:
            return GrantStatus(state=GrantState.DRIFTED, reason=reason)
        return GrantStatus(state=GrantState.LIVE)

    def _drift(self, grant: Grant, current: Pin) -> str | None:
        """As `drifted`, once for all grants that share a name and a pin: a listing has thousands of those."""
        key = (grant.device, id(grant.pin))
        known = self._drifts.get(key)
        if known is None:
            # The pin is kept beside the answer, so that its id stays its own.
            known = self._drifts[key] = (grant.pin, drifted(grant.pin, current))
        return known[1]

    def warnings(self, name: QualifiedName, pin: Pin, sharing: Sharing) -> tuple[str, ...]:
        """What an operator who grants the name should know although it is no reason to refuse."""
        found: list[str] = []
        if sharing is Sharing.EXCLUSIVE and not pin.nodes:
            found.append(f"{name} opens no device node of its own: it is exclusive as a name only")
        try:
            resolve((name,), self.catalog, self._probe)
        except ResolveError as exc:
            found.append(f"{name} cannot be given to a container at present: {exc.message}")
        return tuple(found)

    def _look(self, name: QualifiedName) -> Meaning:
        device = self.catalog.devices.get(name)
        if device is None:
            return Meaning(pin=None, reason=self._absence(name))
        try:
            return Meaning(pin=pin(device, self.catalog, self._probe))
        except RdcError as exc:
            return Meaning(pin=None, reason=exc.message)

    def _absence(self, name: QualifiedName) -> str:
        """Why the catalog lacks the name: a conflict over it, else files that did not load."""
        quoted = f'"{name}"'
        for path, messages in sorted(self.catalog.errors.items()):
            for message in messages:
                if quoted in message:
                    return f"{path}: {message}"
        if self.catalog.unloaded:
            return f"no spec that loads defines it; not loaded: {', '.join(sorted(self.catalog.unloaded))}"
        return "no spec of this machine defines it"


def drifted(pinned: Pin, current: Pin) -> str | None:
    """Why a name no longer means what was pinned, in words; None while it does.

    A node that was missing when it was pinned is known by its path alone, so that it may come into being.
    """
    numbered = {node.path: node for node in current.nodes}
    nodes = tuple(numbered.get(node.path, node) if node.major is None else node for node in pinned.nodes)
    return drift(replace(pinned, nodes=nodes), current)
