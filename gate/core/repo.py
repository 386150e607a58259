"""A repo's configuration and policy, and the gate's own. Pure.

Source: design section 4; issue "The main job, end to end", part 6. The default policy is the strict set; a
repo's file can widen what is not hardware, and nothing in it can open a device.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import NewType, cast

import yaml

from base.errors import MalformedError
from gate.core.capability import HARDWARE_CAPABILITIES, canonical_capability
from gate.core.hostpath import clean_path, reserved_reason
from gate.core.settings import Setting, read_settings

RepoName = NewType("RepoName", str)

SCHEMA_VERSION = 1
MANAGED = "managed"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_RUNTIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
_HARDWARE_RUNTIME = re.compile(r"(nvidia|amd|habana|kata|sysbox)", re.IGNORECASE)
_RUNTIME_ANNOTATIONS = (
    "cdi.k8s.io/", "run.oci.", "io.katacontainers.", "dev.gvisor.", "io.containerd.", "io.kubernetes.",
    "com.nvidia.", "nvidia.", "org.criu.", "module.wasm.",
)  # fmt: skip
_SYSCTL = re.compile(r"(net|kernel|fs\.mqueue)\.[A-Za-z0-9_./-]+\Z")

SAFE_SYSCTLS = frozenset({
    "kernel.shm_rmid_forced", "net.core.somaxconn", "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
})  # fmt: skip
"""Sysctls of the container's own namespaces that Kubernetes calls safe, plus the listen backlog."""


class Trust(StrEnum):
    """Whose work the repo runs."""

    OWNER = "owner"
    STRANGER = "stranger"


class Namespace(StrEnum):
    """Namespaces that a policy may let containers share.

    The host's process namespace is not among them: `/proc/PID/root` of a host process leads past every bind
    rule.
    """

    IPC_HOST = "ipc-host"
    UTS_HOST = "uts-host"
    USERNS_HOST = "userns-host"
    CGROUPNS_HOST = "cgroupns-host"
    PID_CONTAINER = "pid-container"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoPolicy:
    """What one repo may do beyond the strict default. Never hardware.

    `bind_roots` are clean absolute host paths; `capabilities` canonical names (`NET_ADMIN`);
    `security_options` exact options as Docker spells them (`apparmor=unconfined`), with
    `systempaths=unconfined` for empty masked and read-only path lists; `annotations` exact keys.
    """

    bind_roots: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    network_host: bool = False
    namespaces: tuple[Namespace, ...] = ()
    security_options: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    cgroup_parent: str | None = None
    sysctls: tuple[str, ...] = ()
    log_drivers: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Setting]:
        """The policy as its YAML mapping, every key present so that the file shows what can be widened."""
        return {
            item.name: [str(one) for one in value] if isinstance(value, tuple) else value
            for item in fields(self)
            for value in (getattr(self, item.name),)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoConfig:
    """One repo.

    `upstream` is `managed` for a daemon of its own, else the path of an existing daemon's socket. `accept`
    are the preconditions of `gate.core.preconditions` that its daemon may leave unmet.
    """

    name: RepoName
    guid: str
    upstream: str = MANAGED
    trust: Trust = Trust.OWNER
    socket_group: str | None = None
    accept: tuple[str, ...] = ()
    policy: RepoPolicy = field(default_factory=RepoPolicy)

    @property
    def managed(self) -> bool:
        """Whether the repo's daemon is ours to run."""
        return self.upstream == MANAGED

    @classmethod
    def parse(
        cls, raw: bytes, *, source: str = "the repo's file", file_name: str | None = None
    ) -> "RepoConfig":
        """A repo's YAML file.

        Args:
            raw: its content.
            source: what to call it in messages.
            file_name: the file's own name without ending, when it must be the repo's. A file that is being
                renamed (`renaming_to`) has two names, and goes by the one that it lies under.

        Raises:
            MalformedError: anything that the schema or the policy's rules do not know, with its place.
        """
        document = read_settings(raw, "repo.schema.json", source)
        upstream = str(document.get("upstream", MANAGED))
        group = document.get("socket_group")
        return cls(
            name=_name(document, source, file_name),
            guid=str(document["guid"]),
            upstream=upstream if upstream == MANAGED else clean_path(upstream.removeprefix("unix://")),
            trust=Trust(str(document.get("trust", Trust.OWNER))),
            socket_group=None if group is None else str(group),
            accept=tuple(cast("list[str]", document.get("accept", []))),
            policy=parse_policy(cast("Mapping[str, Setting]", document.get("policy", {})), source),
        )

    def to_yaml(self) -> bytes:
        """The repo's file; `parse` reads the same value back."""
        document: dict[str, Setting] = {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "guid": self.guid,
            "upstream": self.upstream if self.managed else f"unix://{self.upstream}",
            "trust": self.trust.value,
            "socket_group": self.socket_group,
            "accept": list(self.accept),
            "policy": self.policy.to_document(),
        }
        return _HEADER.encode() + yaml.safe_dump(document, sort_keys=False, allow_unicode=False).encode()


_HEADER = """\
# One repo of this machine. The gate reads changes without a restart.
# accept: what the daemon of this repo may lack of what 'rdc doctor' asks for, for example [experimental]
# policy widens what is not hardware: the empty default is the strict set. Devices are granted with
# 'rdc repo gpu grant', never here.
#   bind_roots: host directories that containers may bind, for example [/srv/data]
#   capabilities: beyond Docker's 14 defaults; MKNOD here keeps it in containers with writable binds
#   namespaces: ipc-host, uts-host, userns-host, cgroupns-host, pid-container
#   security_options: for example [apparmor=unconfined, systempaths=unconfined]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """The machine's gate. Times in seconds; None leaves the transport's own default.

    `cdi_spec_dirs` are the machine's spec directories in precedence order, the last one winning; empty for
    the root's `etc/cdi`. `engine` is for whoever runs managed daemons, who checks it.
    """

    cdi_spec_dirs: tuple[str, ...] = ()
    engine: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    protected_paths: tuple[str, ...] = ()
    connections: int | None = None
    head_s: float | None = None
    body_s: float | None = None
    inspected_body_bytes: int | None = None

    @classmethod
    def parse(cls, raw: bytes, *, source: str = "gate.yaml") -> "GateConfig":
        """The machine's `gate.yaml`.

        Raises:
            MalformedError: anything that the schema does not know, with its place.
        """
        document = read_settings(raw, "gate.schema.json", source)
        limits = cast("Mapping[str, Setting]", document.get("limits", {}))
        paths = cast("list[str]", document.get("protected_paths", []))
        spec_dirs = cast("list[str]", document.get("cdi_spec_dirs", []))
        return cls(
            cdi_spec_dirs=tuple(clean_path(path) for path in spec_dirs),
            engine=MappingProxyType(cast("dict[str, Setting]", document.get("engine", {}))),
            protected_paths=tuple(clean_path(path) for path in paths),
            connections=cast("int | None", limits.get("connections")),
            head_s=cast("float | None", limits.get("head_s")),
            body_s=cast("float | None", limits.get("body_s")),
            inspected_body_bytes=cast("int | None", limits.get("inspected_body_bytes")),
        )


def parse_repo_name(text: str) -> RepoName:
    """A repo's name: letters, digits, `.`, `_`, `-`, at most 63, the first a letter or digit.

    Raises:
        MalformedError: something else.
    """
    if not _NAME.match(text):
        hint = "use letters, digits, '.', '_' and '-', the first a letter or digit"
        raise MalformedError(f"{text!r} is not a repo name", hint=hint)
    return RepoName(text)


def _name(document: Mapping[str, Setting], source: str, file_name: str | None) -> RepoName:
    name = parse_repo_name(str(document["name"]))
    if file_name is None or file_name == name:
        return name
    if document.get("renaming_to") == file_name:
        return parse_repo_name(file_name)
    raise MalformedError(f"{source} names repo {name}", hint=f"the file of repo {name} is {name}.yaml")


def parse_policy(document: Mapping[str, Setting], source: str) -> RepoPolicy:
    """A policy whose shape the schema has accepted, with the rules that a schema cannot say.

    Raises:
        MalformedError: an entry would open hardware, or cannot mean anything.
    """

    def names(key: str) -> tuple[str, ...]:
        return tuple(cast("list[str]", document.get(key, [])))

    parent = document.get("cgroup_parent")
    policy = RepoPolicy(
        bind_roots=tuple(clean_path(root) for root in names("bind_roots")),
        runtimes=names("runtimes"),
        capabilities=tuple(canonical_capability(name) for name in names("capabilities")),
        network_host=bool(document.get("network_host", False)),
        namespaces=tuple(Namespace(name) for name in names("namespaces")),
        security_options=names("security_options"),
        annotations=names("annotations"),
        cgroup_parent=None if parent is None else str(parent),
        sysctls=names("sysctls"),
        log_drivers=names("log_drivers"),
    )
    faults = [*_path_faults(policy), *_name_faults(policy)]
    if faults:
        raise MalformedError(
            f"{source}: " + "; ".join(faults), hint="devices are granted with 'rdc repo gpu grant'"
        )
    return policy


def _path_faults(policy: RepoPolicy) -> list[str]:
    faults = []
    for index, root in enumerate(policy.bind_roots):
        reason = reserved_reason(root)
        if not root.startswith("/"):
            faults.append(f"policy.bind_roots[{index}]: {root!r} is not an absolute path")
        elif reason is not None:
            faults.append(f"policy.bind_roots[{index}]: {root} {reason.words}")
    return faults


def _name_faults(policy: RepoPolicy) -> list[str]:
    faults = [
        f"policy.capabilities: {name} opens hardware or the host"
        for name in policy.capabilities
        if name in HARDWARE_CAPABILITIES
    ]
    faults += [
        f"policy.runtimes: {name!r} is not a runtime name that can be allowed"
        for name in policy.runtimes
        if not _RUNTIME.match(name) or _HARDWARE_RUNTIME.search(name)
    ]
    faults += [
        f"policy.annotations: {key!r} is read by container runtimes"
        for key in policy.annotations
        if key.startswith(_RUNTIME_ANNOTATIONS)
    ]
    faults += [
        f"policy.sysctls: {name!r} is not of a namespace"
        for name in policy.sysctls
        if not _SYSCTL.match(name)
    ]
    return faults
