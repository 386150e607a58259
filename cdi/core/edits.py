"""Container edits as a spec gives them: frozen values with every default that the library's types have. Pure.

Source: CDI SPEC.md "OCI Edits". An absent string is empty and an absent number is zero, because that is what
the library cannot tell apart either; only where it can is `None` a value.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device file to make in the container.

    `major` 0 means "ask the host". `file_mode` is a number (0o666), `permissions` the cgroup access (`""` is
    `rwm`).
    """

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None

    @property
    def source(self) -> str:
        """The path on the host: `host_path`, else `path`."""
        return self.host_path or self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mount to add; `type` and `options` go to the OCI runtime as they are."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A program that the OCI runtime executes at stage `hook_name`; `timeout` in seconds."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelRdt:
    """Resource director settings. `schemata` empty but present still needs a library that knows it."""

    clos_id: str = ""
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    enable_cmt: bool = False
    enable_mbm: bool = False
    schemata: tuple[str, ...] | None = None
    enable_monitoring: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDevice:
    """A network interface to move from the host into the container, there called `name`."""

    host_interface_name: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """What a device, or every device of a spec, changes in a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing would change: such a device makes its whole file invalid."""
        return self == NO_EDITS


NO_EDITS = ContainerEdits()
"""Edits that change nothing."""
