"""What a daemon must be like so that a gate before it means something. Pure.

A managed daemon fulfils all of it by construction; this is for daemons that exist, and for what changes.
Source: facts page on gates, section 0 item 5; `DefaultRuntime`, `Runtimes`, `Swarm`, `ExperimentalBuild`,
`CDISpecDirs`, `SecurityOptions` and `Warnings` of the Docker Engine API's `GET /info`, `GET /version`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gate.core.daemon_process import DaemonProcess
from gate.core.denial import Denial, Rule, broken, refuse, show
from gate.core.target import MAX_AUDITED_API
from gate.core.versions import too_new, version_number

PLAIN_RUNTIMES = frozenset({"runc", "io.containerd.runc.v2"})
"""Runtimes that give a container what the request says and nothing else."""

OLDEST_API = "1.44"
"""The API of Docker 25, the first release with CDI."""

OLDEST_ROUTED_API = "1.24"
"""The oldest version whose requests the route table was checked against."""

_DEVICE_BY_DEFAULT = (29, 0)
_HARDWARE = re.compile(r"nvidia|amd|habana|kata|sysbox|krun", re.IGNORECASE)
_OPEN_LISTENER = "API is accessible on"
_ROOTLESS = re.compile(r"(?:name=)?rootless(?:,|\Z)")


class Precondition(StrEnum):
    """Stable codes."""

    DEFAULT_RUNTIME = "default-runtime"
    OPEN_LISTENER = "open-listener"
    OPEN_SOCKET = "open-socket"
    API_VERSION = "api-version"
    ENTITLEMENT = "builder-entitlement"
    INFO = "info"
    NOT_DOCKER = "not-docker"
    HARDWARE_RUNTIME = "hardware-runtime"
    DEVICE_HOOK = "device-hook"
    SWARM = "swarm"
    EXPERIMENTAL = "experimental"
    CDI_SPEC_DIRS = "cdi-spec-dirs"
    ROOTLESS = "rootless"
    OLD_API = "old-api"
    NO_CDI = "no-cdi"
    HOST_NETWORK_BUILDS = "host-network-builds"
    DEVICE_BUILDS = "device-builds"


class Weight(StrEnum):
    """How much one counts.

    FATAL: hardware or the host can be reached past the gate, whatever it refuses; nothing is served.
    REQUIRED: a line of defence behind the gate is missing; nothing is served unless the repo's file accepts
    it. ADVICE: told, and served.
    """

    FATAL = "fatal"
    REQUIRED = "required"
    ADVICE = "advice"


ACCEPTABLE = (
    Precondition.HARDWARE_RUNTIME, Precondition.DEVICE_HOOK, Precondition.SWARM, Precondition.EXPERIMENTAL,
    Precondition.CDI_SPEC_DIRS, Precondition.ROOTLESS, Precondition.OLD_API, Precondition.DEVICE_BUILDS,
)  # fmt: skip
"""What a repo's file may accept: the gate refuses to use it itself, so that only the second line is gone."""

_ORDER = {weight: place for place, weight in enumerate(Weight)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """One precondition that does not hold, and what to do about it."""

    precondition: Precondition
    weight: Weight
    detail: str
    remedy: str

    @property
    def fatal(self) -> bool:
        """Whether no file can accept it."""
        return self.weight is Weight.FATAL

    def bars(self, accepted: Collection[str]) -> bool:
        """Whether nothing may be served before this daemon, given what the repo's file accepts."""
        return self.fatal or (self.weight is Weight.REQUIRED and self.precondition not in accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was found out about a daemon, beside its `GET /info`; what is unknown is harmless.

    Args:
        version: its `GET /version`.
        projection: the repo's projection in every spelling, links followed and not; None when nobody asks.
        spec_dirs: the directories of `CDISpecDirs` with links followed, by their own spelling.
        empty_dirs: those of them in which the daemon finds no spec now, by their own spelling.
        process: its command line, configuration and PATH, where it runs on this machine.
        open_socket: whether every user of the machine may connect to it.
    """

    version: Mapping[str, object] = field(default_factory=dict)
    projection: frozenset[str] | None = None
    spec_dirs: Mapping[str, str] = field(default_factory=dict)
    empty_dirs: frozenset[str] = frozenset()
    process: DaemonProcess | None = None
    open_socket: bool = False


NOTHING_ELSE = Observed()


def unmet(info: Mapping[str, object], observed: Observed = NOTHING_ELSE) -> tuple[Unmet, ...]:
    """What does not hold, the fatal first. Total; members that the daemon does not name are harmless."""
    found = (
        *_runtimes(info), *_listeners(info, observed), *_builder(info, observed), *_modes(info),
        *_specs(info, observed), *_versions(observed),
    )  # fmt: skip
    return tuple(sorted(found, key=lambda each: _ORDER[each.weight]))


def unreadable_info(detail: str) -> Unmet:
    """A Docker daemon whose `GET /info` cannot be read, so that nothing about it can be judged."""
    return _fatal(Precondition.INFO, f"its answer to /info cannot be read: {detail}", "look at its log")


def not_docker() -> Unmet:
    """What answers has no version of Docker's API: there are no containers that could be given anything."""
    return _advice(
        Precondition.NOT_DOCKER, "what listens there is no Docker daemon", "put a Docker daemon there"
    )


def refusal(found: Collection[Unmet], repo: str, accepted: Collection[str]) -> Denial | None:
    """The answer to every request while something bars the daemon; None when nothing does."""
    barring = [each for each in found if each.bars(accepted)]
    if not barring:
        return None
    return refuse(
        broken(
            Rule.DAEMON_PRECONDITION,
            f"the daemon of repo {repo} cannot be served ({each.precondition}): {each.detail}",
            f"the operator can {each.remedy}"
            + ("" if each.fatal else f", or write 'accept: [{each.precondition}]' in repos/{repo}.yaml"),
        )
        for each in barring
    )


def _runtimes(info: Mapping[str, object]) -> Iterator[Unmet]:
    default = info.get("DefaultRuntime")
    if isinstance(default, str) and default not in PLAIN_RUNTIMES:
        yield _fatal(
            Precondition.DEFAULT_RUNTIME,
            f"its default runtime is {show(default)}, which may add devices that no request names",
            'set "default-runtime": "runc" in its daemon.json and restart it',
        )
    runtimes = info.get("Runtimes")
    if not isinstance(runtimes, Mapping):
        return
    if _HARDWARE.search(_program(runtimes.get("runc"))):
        yield _fatal(
            Precondition.DEFAULT_RUNTIME,
            f"its runtime runc is {show(_program(runtimes.get('runc')))}, which may add devices",
            "let runc be runc in its daemon.json and restart it",
        )
    hardware = sorted(
        str(name)
        for name, about in runtimes.items()
        if name not in PLAIN_RUNTIMES and (_HARDWARE.search(str(name)) or _HARDWARE.search(_program(about)))
    )
    if hardware:
        yield _required(
            Precondition.HARDWARE_RUNTIME,
            f"it has runtimes that bring hardware: {show(', '.join(hardware))}",
            'take them out of "runtimes" in its daemon.json and restart it: CDI needs none',
        )


def _program(runtime: object) -> str:
    """The program or shim of one entry of `Runtimes`."""
    about = runtime if isinstance(runtime, Mapping) else {}
    return " ".join(str(about.get(key) or "") for key in ("path", "runtimeType"))


def _listeners(info: Mapping[str, object], observed: Observed) -> Iterator[Unmet]:
    remedy = (
        'leave only its unix socket in "hosts" of its daemon.json and on its command line, and restart it'
    )
    warnings = info.get("Warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        if isinstance(warning, str) and _OPEN_LISTENER in warning:
            yield _fatal(
                Precondition.OPEN_LISTENER,
                f"it can be reached past the gate: {show(warning.strip())}",
                remedy,
            )
    process = observed.process
    for host in process.network_hosts if process is not None else ():
        yield _fatal(Precondition.OPEN_LISTENER, f"it can be reached past the gate: {show(host)}", remedy)
    if process is not None and process.hooks:
        yield _required(
            Precondition.DEVICE_HOOK,
            f"it finds {', '.join(process.hooks)} in its PATH and offers GPUs through it",
            "start it with a PATH without these programs: CDI needs none",
        )
    if observed.open_socket:
        yield _fatal(
            Precondition.OPEN_SOCKET,
            "every user of this machine may connect to its own socket",
            "take the permissions of others from its socket, or keep it in a directory of root",
        )


def _builder(info: Mapping[str, object], observed: Observed) -> Iterator[Unmet]:
    """Entitlements. While it cannot be told that builds reach no device, the gate keeps BuildKit closed."""
    given = observed.process.entitlements if observed.process is not None else None
    remedy = 'set "builder": {"entitlements": {"%s": false}} in its daemon.json and restart it'
    if given is not None and given.get("security-insecure", False):
        yield _fatal(
            Precondition.ENTITLEMENT,
            "its builder has security-insecure, so that builds may run privileged",
            remedy % "security-insecure",
        )
    device = None if given is None else given.get("device")
    release = version_number(".".join(str(info.get("ServerVersion", "")).split(".")[:2]))
    if device or (device is None and release is not None and release >= _DEVICE_BY_DEFAULT):
        yield (_required if device else _advice)(
            Precondition.DEVICE_BUILDS,
            "its builder has device, so that builds may ask for any device that it can resolve",
            remedy % "device",
        )
    if given is not None and given.get("network-host", True):
        yield _advice(
            Precondition.HOST_NETWORK_BUILDS,
            "its builder has network-host, so that builds may use the host's network",
            remedy % "network-host",
        )


def _modes(info: Mapping[str, object]) -> Iterator[Unmet]:
    swarm = info.get("Swarm")
    if isinstance(swarm, Mapping) and swarm.get("LocalNodeState") not in (None, "", "inactive"):
        yield _required(
            Precondition.SWARM,
            "it is part of a swarm, whose services start containers that the gate does not see",
            "run 'docker swarm leave --force' on its own socket",
        )
    if info.get("ExperimentalBuild") is True:
        yield _required(
            Precondition.EXPERIMENTAL,
            "its experimental features are on",
            'set "experimental": false in its daemon.json and restart it',
        )
    options = info.get("SecurityOptions")
    rootless = any(isinstance(each, str) and _ROOTLESS.match(each) for each in _list(options))
    if rootless or info.get("CgroupDriver") == "none":
        yield _required(
            Precondition.ROOTLESS,
            "it runs without device control groups, so that only the rules for binds keep devices away",
            "run it as root with a cgroup driver",
        )


def _specs(info: Mapping[str, object], observed: Observed) -> Iterator[Unmet]:
    projection = observed.projection
    if projection is None or "CDISpecDirs" not in info:
        return
    directories = [each for each in _list(info["CDISpecDirs"]) if isinstance(each, str)]
    wanted = min(projection, default="")
    if not directories:
        yield _advice(
            Precondition.NO_CDI,
            "CDI is off, so that no device can be given to its containers",
            f'set "features": {{"cdi": true}} and "cdi-spec-dirs": ["{wanted}"] in its daemon.json',
        )
    others = [
        each
        for each in directories
        if each not in projection
        and observed.spec_dirs.get(each, each) not in projection
        and each not in observed.empty_dirs
    ]
    if others:
        yield _required(
            Precondition.CDI_SPEC_DIRS,
            f"it reads CDI specs from {show(', '.join(others))}, so that starts which no request causes "
            "can resolve devices that are not granted",
            f'leave only "{wanted}" in "cdi-spec-dirs" of its daemon.json and restart it',
        )


def _versions(observed: Observed) -> Iterator[Unmet]:
    newest, oldest = (version_number(observed.version.get(key)) for key in ("ApiVersion", "MinAPIVersion"))
    if newest is not None and newest < (version_number(OLDEST_API) or newest):
        yield _fatal(
            Precondition.API_VERSION,
            f"its newest API is {observed.version['ApiVersion']}, and CDI came with {OLDEST_API}",
            "install Docker 25 or newer",
        )
    if oldest is not None and too_new(observed.version["MinAPIVersion"]):
        yield _fatal(
            Precondition.API_VERSION,
            f"its oldest API is {observed.version['MinAPIVersion']}, the gate's newest {MAX_AUDITED_API}",
            "unset DOCKER_MIN_API_VERSION in its environment and restart it, or use an older engine",
        )
    if oldest is not None and oldest < (version_number(OLDEST_ROUTED_API) or oldest):
        yield _required(
            Precondition.OLD_API,
            f"it takes requests of API {observed.version['MinAPIVersion']}, older than {OLDEST_ROUTED_API}",
            "unset DOCKER_MIN_API_VERSION in its environment and restart it",
        )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _fatal(precondition: Precondition, detail: str, remedy: str) -> Unmet:
    return Unmet(precondition=precondition, weight=Weight.FATAL, detail=detail, remedy=remedy)


def _required(precondition: Precondition, detail: str, remedy: str) -> Unmet:
    return Unmet(precondition=precondition, weight=Weight.REQUIRED, detail=detail, remedy=remedy)


def _advice(precondition: Precondition, detail: str, remedy: str) -> Unmet:
    return Unmet(precondition=precondition, weight=Weight.ADVICE, detail=detail, remedy=remedy)
