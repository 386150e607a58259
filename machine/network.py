"""The default network of a repo's containers: a bridge of its own and the few packet filter rules it needs.

dockerd itself stays away from the packet filter (see `machine.core.daemon_config`), so that any number of
daemons can share the machine's network namespace. Published ports work through docker-proxy. A repo's
containers reach each other and the outside, never another repo's containers.
"""

import fcntl
import ipaddress
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from base.errors import MalformedError, NotFoundError, RdcError, UnreachableError
from base.files import make_directory, read_bytes, write_atomic
from base.layout import Layout
from machine.core import subnets
from machine.core.daemon_config import Bridge

_COMMAND_TIMEOUT_S = 20
_ROUTES = Path("/proc/net/route")
_POOL_FILE = "network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A repo's addresses, and the tools that set them up."""

    guid: str
    base: ipaddress.IPv4Network
    pool: ipaddress.IPv4Network
    tools: Mapping[str, Path]

    @property
    def bridge(self) -> Bridge:
        """The default bridge."""
        return Bridge(device=subnets.bridge_name(self.guid), gateway=subnets.gateway(self.pool))

    @property
    def _chain(self) -> str:
        return subnets.bridge_name(self.guid).upper()

    def up(self) -> None:
        """Make bridge and rules, or bring what exists into this state.

        Raises:
            UnreachableError: the kernel or a tool refuses.
        """
        device, gateway = self.bridge.device, self.bridge.gateway
        if not self._works("ip", "link", "show", "dev", device):
            self._run("ip", "link", "add", "name", device, "type", "bridge")
        self._run("ip", "addr", "replace", gateway, "dev", device)
        self._run("ip", "link", "set", "dev", device, "up")
        self._fill_chain()
        self._ensure("filter", "FORWARD", ("-j", self._chain))
        self._ensure("nat", "POSTROUTING", self._masquerade())

    def _fill_chain(self) -> None:
        """Make the chain hold our rules; one that does stays: no packet may meet an empty one."""
        rules = tuple(self._filter_rules())
        listed = _call(self.tools["iptables"], ("-w", "-S", self._chain))
        wanted = [f"-N {self._chain}", *(f"-A {self._chain} {' '.join(rule)}" for rule in rules)]
        if listed.stdout.splitlines() == wanted:
            return
        if listed.returncode != 0:
            self._run("iptables", "-w", "-N", self._chain)
        self._run("iptables", "-w", "-F", self._chain)
        for rule in rules:
            self._run("iptables", "-w", "-A", self._chain, *rule)

    def down(self) -> None:
        """Take away what `up` made and the bridges of the repo's own networks, which dockerd leaves behind.

        dockerd makes the latter anew when it starts. What is gone already is fine.
        """
        for device in self._bridges():
            self._works("ip", "link", "del", "dev", device)
        if "iptables" in self.tools and self._works("iptables", "-w", "-n", "-L", self._chain):
            self._works("iptables", "-w", "-D", "FORWARD", "-j", self._chain)
            self._works("iptables", "-w", "-F", self._chain)
            self._works("iptables", "-w", "-X", self._chain)
            self._works("iptables", "-w", "-t", "nat", "-D", "POSTROUTING", *self._masquerade())

    def _bridges(self) -> Iterator[str]:
        """Bridge devices with an address of this repo."""
        if "ip" not in self.tools:
            return
        listed = _call(self.tools["ip"], ("-o", "-4", "addr", "show", "type", "bridge")).stdout
        for device, address in subnets.addresses(listed):
            if address in self.pool:
                yield device

    def _filter_rules(self) -> Iterator[tuple[str, ...]]:
        own = str(self.pool)
        yield ("-s", own, "-d", own, "-j", "ACCEPT")
        yield ("-s", own, "-d", str(self.base), "-j", "DROP")
        yield ("-s", own, "-j", "ACCEPT")
        yield ("-d", own, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
        yield ("-d", own, "-j", "DROP")

    def _masquerade(self) -> tuple[str, ...]:
        return ("-s", str(self.pool), "!", "-d", str(self.pool), "-j", "MASQUERADE")

    def _ensure(self, table: str, chain: str, rule: Sequence[str]) -> None:
        if not self._works("iptables", "-w", "-t", table, "-C", chain, *rule):
            self._run("iptables", "-w", "-t", table, "-I", chain, *rule)

    def _works(self, tool: str, *arguments: str) -> bool:
        return _call(self.tools[tool], arguments).returncode == 0

    def _run(self, tool: str, *arguments: str) -> None:
        done = _call(self.tools[tool], arguments)
        if done.returncode != 0:
            raise UnreachableError(f"'{tool} {' '.join(arguments)}' failed: {done.stderr.strip()}")


def usable(tools: Mapping[str, Path]) -> str:
    """Why bridges cannot be used here; empty when they can.

    Args:
        tools: programs by name.
    """
    missing = [name for name in ("ip", "iptables", "docker-proxy") if name not in tools]
    if missing:
        return f"{', '.join(missing)} not found"
    if os.geteuid() != 0:
        return "not root"
    listed = _call(tools["iptables"], ("-w", "-t", "nat", "-S", "POSTROUTING"))
    return "" if listed.returncode == 0 else f"iptables does not work here: {listed.stderr.strip()}"


def pool_of(layout: Layout, guid: str, base: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    """The repo's own addresses, chosen once and kept with its state.

    Choosing is serialised over all repos of the root and passes over the machine's own routes.

    Raises:
        RefusedError: the pool is used up.
        AccessError: the state directory cannot be written.
    """
    make_directory(layout.state_dir / "repos", mode=0o711)
    with _choosing(layout):
        kept = kept_pool(layout, guid)
        if kept is not None and kept.subnet_of(base):
            return kept
        taken = [
            pool
            for other in (layout.state_dir / "repos").iterdir()
            if (pool := kept_pool(layout, other.name))
        ]
        pool = subnets.choose_pool(guid, base, (*taken, *_routes()))
        state = layout.repo(guid).state
        make_directory(state, mode=0o711)
        write_atomic(state / _POOL_FILE, f"{pool}\n".encode())
        return pool


def kept_pool(layout: Layout, guid: str) -> ipaddress.IPv4Network | None:
    """The repo's addresses if they were ever chosen."""
    try:
        return ipaddress.IPv4Network(
            read_bytes(layout.repo(guid).state / _POOL_FILE, limit=64).decode().strip()
        )
    except (RdcError, ValueError):
        return None  # never written, or not ours: a new piece is as good


@contextmanager
def _choosing(layout: Layout) -> Iterator[None]:
    descriptor = os.open(
        layout.state_dir / "repos" / ".network.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _routes() -> tuple[ipaddress.IPv4Network, ...]:
    try:
        return subnets.networks_in_routes(read_bytes(_ROUTES).decode())
    except (NotFoundError, MalformedError):
        return ()


def _call(program: Path, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            (str(program), *arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise UnreachableError(f"{program} does not run: {exc}") from exc
