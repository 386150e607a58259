"""What keeps a container a container: privileges, security options, runtime, limits. Pure.

Source: facts page on gates, section 2.E; moby's defaults of engines 25 to 28. Each rule is an allow-list; a
policy adds to it and can never take hardware along.
"""

import re
from collections.abc import Callable, Iterator

from gate.core.capability import DEFAULT_CAPABILITIES, canonical_capability
from gate.core.denial import Broken, Rule, broken, show
from gate.core.model import HostConfig
from gate.core.repo import SAFE_SYSCTLS, RepoPolicy

RUNC = frozenset({"", "runc", "io.containerd.runc.v2"})
"""Spellings of the default runtime; recreating tools copy `runc` from inspect."""

UNCONFINED_PATHS = "systempaths=unconfined"

_MASKED = frozenset({
    "/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
})  # fmt: skip
_ALSO_MASKED = frozenset({"/proc/interrupts", "/sys/devices/virtual/powercap"})
_THERMAL = re.compile(r"/sys/devices/system/cpu/cpu[0-9]+/thermal_throttle\Z")
_READONLY = frozenset({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"})

_NO_NEW_PRIVILEGES = frozenset({
    "no-new-privileges", "no-new-privileges=true", "no-new-privileges:true",
    "no-new-privileges=1", "no-new-privileges:1",
})  # fmt: skip
_LOG_OPTIONS = {
    "json-file": frozenset({"max-size", "max-file", "compress", "mode", "max-buffer-size", "labels",
                            "labels-regex", "env", "env-regex", "tag"}),
    "local": frozenset({"max-size", "max-file", "compress", "mode", "max-buffer-size"}),
    "none": frozenset[str](),
}  # fmt: skip
_LOG_OPTIONS[""] = _LOG_OPTIONS["json-file"] | _LOG_OPTIONS["local"]


def privileged_faults(host: HostConfig, _policy: RepoPolicy) -> Iterator[Broken]:
    """Privileged opens every host device: never."""
    if host.privileged:
        yield broken(Rule.PRIVILEGED, "--privileged is not allowed")


def capability_faults(host: HostConfig, policy: RepoPolicy) -> Iterator[Broken]:
    """Docker's 14 defaults and the policy's; `ALL` is no capability but every one."""
    for name in dict.fromkeys(host.cap_add or ()):
        canonical = canonical_capability(name)
        if canonical not in DEFAULT_CAPABILITIES and canonical not in policy.capabilities:
            yield broken(Rule.CAPABILITY, f"capability {show(name)} is not allowed")


def security_faults(host: HostConfig, policy: RepoPolicy) -> Iterator[Broken]:
    """No-new-privileges, and the policy's exact options; `:` and `=` separate alike, as the daemon has it."""
    allowed = {_separator(option) for option in policy.security_options}
    for option in dict.fromkeys(host.security_opt or ()):
        if option not in _NO_NEW_PRIVILEGES and _separator(option) not in allowed:
            yield broken(Rule.SECURITY_OPTION, f"security option {show(option)} is not allowed")


def _separator(option: str) -> str:
    name, separator, value = option.partition("=")
    if not separator or ":" in name:
        name, _, value = option.partition(":")
    return f"{name}={value}"


def system_path_faults(host: HostConfig, policy: RepoPolicy) -> Iterator[Broken]:
    """Masked and read-only paths: the daemon's own lists or more, never less (`[]` unmasks)."""
    if UNCONFINED_PATHS in policy.security_options:
        return
    for name, given, needed in (
        ("MaskedPaths", host.masked_paths, _MASKED),
        ("ReadonlyPaths", host.readonly_paths, _READONLY),
    ):
        if given is not None and not needed.issubset(given):
            yield broken(Rule.SYSTEM_PATHS, f"{name} without the daemon's own entries is not allowed")


def canonical_paths(host: HostConfig) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Allowed path lists to emit: None, the daemon's own list, where nothing beyond any engine's is named."""
    masked, readonly = host.masked_paths, host.readonly_paths
    if masked and all(path in _MASKED or path in _ALSO_MASKED or _THERMAL.match(path) for path in masked):
        masked = None
    if readonly and _READONLY.issuperset(readonly):
        readonly = None
    return masked, readonly


def annotation_faults(host: HostConfig, policy: RepoPolicy) -> Iterator[Broken]:
    """Annotations reach the runtime verbatim."""
    for key in host.annotations or ():
        if key not in policy.annotations:
            yield broken(Rule.ANNOTATION, f"annotation {show(key)} is not allowed")


def runtime_faults(host: HostConfig, policy: RepoPolicy) -> Iterator[Broken]:
    """Runc, and what the policy names."""
    if host.runtime not in RUNC and host.runtime not in policy.runtimes:
        yield broken(Rule.RUNTIME, f"runtime {show(host.runtime)} is not allowed")


def cgroup_faults(host: HostConfig, policy: RepoPolicy) -> Iterator[Broken]:
    """The operator's cgroup parent or none; no joining of another container's cgroup."""
    if host.cgroup_parent and host.cgroup_parent != policy.cgroup_parent:
        yield broken(Rule.CGROUP_PARENT, f"cgroup parent {show(host.cgroup_parent)} is not allowed")
    if host.cgroup:
        yield broken(Rule.CGROUP_JOIN, f"joining cgroup {show(host.cgroup)} is not allowed")


def sysctl_faults(host: HostConfig, policy: RepoPolicy) -> Iterator[Broken]:
    """Sysctls of the container's own namespaces; runc refuses those of the network with host networking."""
    for name in host.sysctls or ():
        spelled = name.replace("/", ".")
        if spelled not in SAFE_SYSCTLS and spelled not in policy.sysctls:
            yield broken(Rule.SYSCTL, f"sysctl {show(name)} is not allowed")


def storage_faults(host: HostConfig, _policy: RepoPolicy) -> Iterator[Broken]:
    """Options of the storage driver."""
    for name in host.storage_opt or ():
        yield broken(Rule.STORAGE_OPTION, f"storage option {show(name)} is not allowed")


def log_faults(host: HostConfig, policy: RepoPolicy) -> Iterator[Broken]:
    """Log drivers that stay inside the daemon, and their own options; others dial sockets and read files."""
    driver, options = host.log_config.type_, host.log_config.config or {}
    if driver in policy.log_drivers:
        for name, value in options.items():
            if value.startswith(("unix", "/")):
                yield broken(Rule.LOG_DRIVER, f"log option {show(name)}={show(value)} names a host path")
        return
    allowed = _LOG_OPTIONS.get(driver)
    if allowed is None:
        yield broken(Rule.LOG_DRIVER, f"log driver {show(driver)} is not allowed")
        return
    for name in options:
        if name not in allowed:
            yield broken(Rule.LOG_DRIVER, f"log option {show(name)} is not allowed")


def oom_faults(host: HostConfig, _policy: RepoPolicy) -> Iterator[Broken]:
    """Nobody's container is to outlive the host's own processes."""
    if host.oom_kill_disable:
        yield broken(Rule.OOM, "--oom-kill-disable is not allowed")
    if host.oom_score_adj < 0:
        yield broken(Rule.OOM, f"--oom-score-adj {host.oom_score_adj} is not allowed")


def isolation_faults(host: HostConfig, _policy: RepoPolicy) -> Iterator[Broken]:
    """A Windows setting; its default is the only value on Linux."""
    if host.isolation not in {"", "default"}:
        yield broken(Rule.ISOLATION, f"isolation {show(host.isolation)} is not allowed")


SandboxRule = Callable[[HostConfig, RepoPolicy], Iterator[Broken]]

CREATE_RULES: tuple[SandboxRule, ...] = (
    privileged_faults, capability_faults, security_faults, system_path_faults, annotation_faults,
    runtime_faults, cgroup_faults, sysctl_faults, storage_faults, log_faults, oom_faults, isolation_faults,
)  # fmt: skip
"""What a create is held to."""

START_RULES: tuple[SandboxRule, ...] = (
    privileged_faults,
    capability_faults,
    annotation_faults,
    runtime_faults,
)
"""What an existing container is held to again: what could open hardware. The rest was decided at create, and
what inspect shows is filled with the daemon's own defaults (cgroup namespace, SELinux labels, path lists)."""
