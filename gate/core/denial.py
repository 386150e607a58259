"""What the gate says when it says no: stable codes, details, and the way forward. Pure.

Source: issue "The main job, end to end", part 6; design section 5. The Docker CLI shows nothing but the
`message` of the answer, on one line, so everything a user needs is in it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

_SHOWN = 160
"""Longest client text repeated in a message; CDI names, paths and option strings of real use are shorter."""

MOST_TOLD = 64
"""Most broken rules that one answer spells out: a body of 1 MiB can break 100,000, 12 MiB of words."""


class Rule(StrEnum):
    """Why a request was refused. The values are stable: tests, audit and metrics use them."""

    MALFORMED = "malformed"
    DAEMON_PRECONDITION = "daemon-precondition"
    API_VERSION = "api-version"
    UNKNOWN_ENDPOINT = "unknown-endpoint"
    PLUGINS = "plugins"
    SWARM = "swarm"
    CHECKPOINTS = "checkpoints"
    LEGACY_COPY = "legacy-copy"
    CLUSTER_VOLUME = "cluster-volume"
    DEBUG = "debug"
    OBJECT_UNKNOWN = "object-unknown"
    LOOKUP_FAILED = "lookup-failed"
    TOO_MANY = "too-many"

    GRANT_MISSING = "grant-missing"
    GRANT_EXPIRED = "grant-expired"
    GRANT_DRIFTED = "grant-drifted"
    GRANT_UNUSABLE = "grant-unusable"
    CDI_NAME = "cdi-name"
    CDI_REQUEST = "cdi-request"
    CDI_TARGET = "cdi-target"
    GPUS_FLAG = "gpus-flag"
    DEPLOY_DEVICES = "deploy-devices"
    DEVICE_DRIVER = "device-driver"
    RAW_DEVICE = "raw-device"
    DEVICE_CGROUP_RULE = "device-cgroup-rule"
    BLKIO_DEVICE = "blkio-device"

    PRIVILEGED = "privileged"
    PRIVILEGED_EXEC = "privileged-exec"
    CAPABILITY = "capability"
    SECURITY_OPTION = "security-option"
    SYSTEM_PATHS = "system-paths"
    ANNOTATION = "annotation"
    RUNTIME = "runtime"
    CGROUP_PARENT = "cgroup-parent"
    NETWORK_MODE = "network-mode"
    PID_MODE = "pid-mode"
    IPC_MODE = "ipc-mode"
    UTS_MODE = "uts-mode"
    USERNS_MODE = "userns-mode"
    CGROUPNS_MODE = "cgroupns-mode"
    CGROUP_JOIN = "cgroup-join"
    SYSCTL = "sysctl"
    STORAGE_OPTION = "storage-option"
    LOG_DRIVER = "log-driver"
    OOM = "oom"
    ISOLATION = "isolation"
    TOP_LEVEL_HOST_CONFIG = "top-level-host-config"

    MOUNT_MALFORMED = "mount-malformed"
    MOUNT_TYPE = "mount-type"
    MOUNT_PROPAGATION = "mount-propagation"
    MOUNT_TARGET = "mount-target"
    BIND_DEVICE = "bind-device"
    BIND_SYSTEM = "bind-system"
    BIND_SOCKET = "bind-socket"
    BIND_ROOT = "bind-root"
    BIND_LINK = "bind-link"
    BIND_UNCONFINED = "bind-unconfined"
    TMPFS_OPTION = "tmpfs-option"
    VOLUME_DRIVER = "volume-driver"
    VOLUME_OPTION = "volume-option"
    VOLUMES_FROM = "volumes-from"

    NETWORK_DRIVER = "network-driver"
    NETWORK_OPTION = "network-option"
    UPDATE_FIELD = "update-field"
    IMAGE_URL = "image-url"
    BUILD_REMOTE = "build-remote"
    BUILD_NETWORK = "build-network"
    BUILD_OPTION = "build-option"
    BUILDER_ENTITLEMENT = "builder-entitlement"
    BUILDER_DEVICES = "builder-devices"

    ARCHIVE_DEVICE = "archive-device"
    ARCHIVE_COMPRESSED = "archive-compressed"
    ARCHIVE_MALFORMED = "archive-malformed"


_ANY_FILE = "repos/NAME.yaml"
_POLICY = f"the operator can widen the repo's policy in etc/rediacc/{_ANY_FILE}"
_BY_NAME = "use a CDI name: --device rediacc.io/dri=renderD128, rediacc.io/amd=gpu0 or nvidia.com/gpu=0"
_NAMED = "--device nvidia.com/gpu=0, or devices: [nvidia.com/gpu=0] in Compose"
_BUILDER_MANAGED = "or the operator runs the repo on a managed daemon, which has no builder entitlements"
_BUILDER_DIRS = "or the operator sets cdi-spec-dirs in its daemon.json to the directory in 'rdc repo show'"

REMEDIES: Mapping[Rule, str] = MappingProxyType(
    {
        Rule.DAEMON_PRECONDITION: "ask the operator to look at 'rdc doctor REPO'",
        Rule.MALFORMED: "send the request as Docker's API describes it",
        Rule.API_VERSION: "use an API version from 1.24 to 1.51, for example DOCKER_API_VERSION=1.51",
        Rule.UNKNOWN_ENDPOINT: "use an endpoint of Docker's API up to version 1.51",
        Rule.PLUGINS: "use the built-in volume, network and log drivers",
        Rule.SWARM: "use containers or Compose; a repo's daemon is never part of a swarm",
        Rule.CHECKPOINTS: "stop and start the container instead",
        Rule.LEGACY_COPY: "use 'docker cp', which reads /containers/ID/archive",
        Rule.CLUSTER_VOLUME: "use a local volume",
        Rule.DEBUG: "ask the operator, who can profile the daemon on its own socket",
        Rule.OBJECT_UNKNOWN: "check the name with 'docker ps -a', 'docker volume ls' or 'docker network ls'",
        Rule.LOOKUP_FAILED: "try again; if it stays, ask the operator to check the repo's daemon",
        Rule.TOO_MANY: "use fewer volumes, mounts and bind sources in one container",
        Rule.GRANT_MISSING: "ask the operator for 'rdc repo gpu grant REPO --device NAME'",
        Rule.GRANT_EXPIRED: "ask the operator for 'rdc repo gpu grant REPO --device NAME --expires 8h'",
        Rule.GRANT_DRIFTED: "ask the operator to renew it, 'rdc repo gpu regrant REPO --device NAME'",
        Rule.GRANT_UNUSABLE: "ask the operator to look at 'rdc repo gpu list REPO'",
        Rule.CDI_NAME: "write it as vendor/class=name, for example nvidia.com/gpu=0",
        Rule.CDI_REQUEST: f"name each device instead: {_NAMED}",
        Rule.CDI_TARGET: "write the CDI name alone, without ':target' or ':permissions'",
        Rule.GPUS_FLAG: "use --device nvidia.com/gpu=0 (or =all), or devices: [nvidia.com/gpu=0] in Compose",
        Rule.DEPLOY_DEVICES: "use devices: [nvidia.com/gpu=0] of the Compose service instead",
        Rule.DEVICE_DRIVER: f"use the CDI form: {_NAMED}",
        Rule.RAW_DEVICE: _BY_NAME,
        Rule.DEVICE_CGROUP_RULE: "use a CDI grant, which brings the rule along: --device vendor/class=name",
        Rule.BLKIO_DEVICE: "use --blkio-weight, which names no host device",
        Rule.PRIVILEGED: "name devices by CDI; to build, use the default builder: docker buildx use default",
        Rule.PRIVILEGED_EXEC: "exec without --privileged",
        Rule.CAPABILITY: f"drop it, or {_POLICY} (capabilities)",
        Rule.SECURITY_OPTION: f"allowed is no-new-privileges; {_POLICY} (security_options)",
        Rule.SYSTEM_PATHS: f"leave MaskedPaths and ReadonlyPaths out; {_POLICY} (security_options)",
        Rule.ANNOTATION: f"use labels, which no runtime reads; {_POLICY} (annotations)",
        Rule.RUNTIME: f"leave the runtime out and use the CDI form: {_NAMED}",
        Rule.CGROUP_PARENT: "leave the cgroup parent out; the operator sets it for the whole repo",
        Rule.NETWORK_MODE: f"use a bridge network and publish ports with -p; {_POLICY} (network_host)",
        Rule.PID_MODE: f"leave --pid out; {_POLICY} (namespaces)",
        Rule.IPC_MODE: f"use --ipc private, shareable or container:NAME; {_POLICY} (namespaces)",
        Rule.UTS_MODE: f"use --hostname; {_POLICY} (namespaces)",
        Rule.USERNS_MODE: f"leave --userns out; {_POLICY} (namespaces)",
        Rule.CGROUPNS_MODE: f"use --cgroupns private; {_POLICY} (namespaces)",
        Rule.CGROUP_JOIN: "leave HostConfig.Cgroup out",
        Rule.SYSCTL: f"leave it out; {_POLICY} (sysctls)",
        Rule.STORAGE_OPTION: "leave --storage-opt out",
        Rule.LOG_DRIVER: f"use json-file, local or none with their own options; {_POLICY} (log_drivers)",
        Rule.OOM: "leave --oom-kill-disable out, and --oom-score-adj at 0 or above",
        Rule.ISOLATION: "leave --isolation out",
        Rule.TOP_LEVEL_HOST_CONFIG: "put it into HostConfig, where it is checked",
        Rule.MOUNT_MALFORMED: "write SOURCE:TARGET[:MODE] with an absolute path or a volume name as source",
        Rule.MOUNT_TYPE: "use a volume, a tmpfs, an image mount, or a bind below the repo's bind roots",
        Rule.MOUNT_PROPAGATION: "use rprivate, the default",
        Rule.MOUNT_TARGET: "mount it elsewhere; device runtimes read this path as a device request",
        Rule.BIND_DEVICE: _BY_NAME,
        Rule.BIND_SYSTEM: "use a named volume, or a path below the repo's bind roots",
        Rule.BIND_SOCKET: "bind the gate's own socket, the one in DOCKER_HOST",
        Rule.BIND_ROOT: f"use a named volume; {_POLICY} (bind_roots)",
        Rule.BIND_LINK: "make the container anew, for what the path means now",
        Rule.BIND_UNCONFINED: "try again in some seconds; if it stays, the operator finds why in renet's log",
        Rule.TMPFS_OPTION: "use size, mode, uid, gid, nr_inodes, ro, rw, exec, noexec, nosuid, nodev",
        Rule.VOLUME_DRIVER: "use the local driver",
        Rule.VOLUME_OPTION: f"use a volume without driver options; for a host path, {_POLICY} (bind_roots)",
        Rule.VOLUMES_FROM: "mount the volumes you need by name",
        Rule.NETWORK_DRIVER: "use the bridge driver",
        Rule.NETWORK_OPTION: "use the bridge driver's own options, without a host interface",
        Rule.UPDATE_FIELD: "update CPU, memory, pids, block weight and restart policy only",
        Rule.IMAGE_URL: "download it and pipe it in: 'docker import - NAME', or 'docker pull'",
        Rule.BUILD_REMOTE: "clone or download the context and build it from a directory or from '-'",
        Rule.BUILD_NETWORK: f"use --network default or none; {_POLICY} (network_host)",
        Rule.BUILD_OPTION: "leave the option out",
        Rule.BUILDER_ENTITLEMENT: f"build with DOCKER_BUILDKIT=0; {_BUILDER_MANAGED}",
        Rule.BUILDER_DEVICES: f"build with DOCKER_BUILDKIT=0; {_BUILDER_DIRS}",
        Rule.ARCHIVE_DEVICE: "leave device nodes out of it: a container's devices come from CDI grants",
        Rule.ARCHIVE_COMPRESSED: "send the tar uncompressed: gunzip -c FILE | docker cp - CONTAINER:PATH",
        Rule.ARCHIVE_MALFORMED: "write the archive with GNU tar, bsdtar or 'docker cp', in one piece",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """One rule that the request breaks, and the way forward."""

    rule: Rule
    detail: str
    remedy: str

    def message(self) -> str:
        """`<detail> [<code>]: <remedy>`."""
        return f"{self.detail} [{self.rule.value}]: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """The whole answer: every broken rule at once.

    `status` is 400 for what cannot be read, 404 for acts on a container that does not exist, else 403; never
    404 on a create, because then the Docker CLI pulls the image and tries again.
    """

    status: int
    broken: tuple[Broken, ...]

    def message(self) -> str:
        """The broken rules on one line, and how many more there are than anyone would read."""
        told = [one.message() for one in self.broken[:MOST_TOLD]]
        if len(self.broken) > MOST_TOLD:
            told.append(f"and {len(self.broken) - MOST_TOLD} more")
        return "; ".join(told)

    def codes(self) -> tuple[str, ...]:
        """The stable codes, each once, in the order found."""
        return tuple(dict.fromkeys(one.rule.value for one in self.broken))


def broken(rule: Rule, detail: str, remedy: str = "") -> Broken:
    """A broken rule with its own remedy, else the rule's."""
    return Broken(rule=rule, detail=detail, remedy=remedy or REMEDIES[rule])


def refuse(found: Iterable[Broken], repo: str = "") -> Denial:
    """403 with every broken rule, each once, in the order found; remedies name the repo's own file."""
    distinct = tuple(dict.fromkeys(found))
    if repo:
        file = f"repos/{repo}.yaml"
        told = (replace(one, remedy=one.remedy.replace(_ANY_FILE, file)) for one in distinct[:MOST_TOLD])
        distinct = (*told, *distinct[MOST_TOLD:])
    return Denial(status=403, broken=distinct)


def malformed(detail: str, rule: Rule = Rule.MALFORMED) -> Denial:
    """400: the request cannot be read in exactly one way."""
    return Denial(status=400, broken=(broken(rule, detail),))


def show_options(options: Mapping[str, str]) -> str:
    """Options for a message, as `key=value` in their order."""
    return show(", ".join(f"{key}={value}" for key, value in options.items()))


def show(text: str) -> str:
    """Client text for a message: printable, on one line, cut where it is longer than anyone would read."""
    cut = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in cut) or "''"
