"""Making, forking and finding repos.

A repo is its file below `etc/rediacc/repos`: it exists from the moment the file is there, and the running
gate and `renet up` follow. Deleting goes the other way round: first the file, then the daemon, then the
grants (a device must not be free for others while containers hold it), last the data. Interrupted, it is
finished by deleting the GUID.
"""

import dataclasses
import fcntl
import grp
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from base.clock import SystemClock
from base.errors import AccessError, MalformedError, NotFoundError, RdcError, RefusedError, UsageError
from base.files import make_directory
from base.layout import ROOT_VARIABLE, UNIX_PATH_MAX, Layout
from base.run_lock import is_held
from gate.core.repo import MANAGED, RepoConfig, RepoName, RepoPolicy, Trust, parse_repo_name
from gate.repos import RepoFiles
from grants.core.model import RepoGuid
from machine.core.refs import RepoRef, require_local, unknown_repo
from machine.docker import Daemon
from machine.journal import Journal

NAME_LIMIT = 32


class RepoExistsError(RefusedError):
    """The name is taken."""

    code = "exists"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRepo:
    """What an operator asks for; `upstream` is a daemon's `unix://` address, None for one of its own.

    `stop_holders`: the gate may stop the containers that hold hardware in that daemon now.
    """

    name: str
    upstream: str | None = None
    bind_roots: tuple[str, ...] = ()
    group: str | None = None
    trust: Trust = Trust.OWNER
    stop_holders: bool = False


def create(layout: Layout, new: NewRepo) -> RepoConfig:
    """Record a repo; daemon and gate follow when they run.

    Raises:
        UsageError: something is malformed.
        RepoExistsError: there is a repo of that name.
        RefusedError: another repo uses that daemon, it can be reached past a gate, containers in it hold
            hardware, or the root is too deep.
        NotFoundError: there is no such group.
        AccessError: it cannot be written, or not be recorded in the audit log.
    """
    config = _configured(layout, new)
    _check_sockets(layout, config)
    with changing(layout):
        _record(layout, config, stop_holders=new.stop_holders)
    return config


def fork(
    layout: Layout, reference: str, name: str, *, upstream: str | None = None, stop_holders: bool = False
) -> RepoConfig:
    """Record a repo with the configuration of another, a GUID of its own, and nothing else of it.

    Neither grants nor containers, images and volumes are copied.

    Args:
        layout: the machine.
        reference: the repo to take the configuration from.
        name: the new one's name.
        upstream: `managed`, or a daemon's `unix://` address; None for a daemon of its own where the first
            repo has one.
        stop_holders: as in `NewRepo`.

    Raises:
        UsageError: something is malformed.
        RefusedError: like `create`, or both repos would use one daemon.
        NotFoundError: there is no such repo.
        MalformedError: its file cannot be understood.
        AccessError: it cannot be written, or not be recorded in the audit log.
    """
    with changing(layout):
        source = find(layout, reference)
        if upstream is None and not source.managed:
            raise RefusedError(
                f"repo '{source.name}' uses the daemon at {source.upstream}, and two repos never share one",
                hint=f"add '--upstream {MANAGED}' for a daemon of its own, or another daemon's address",
            )
        own = upstream in {None, MANAGED}
        config = dataclasses.replace(
            source,
            name=new_name(name),
            guid=str(uuid.uuid4()),
            upstream=MANAGED if own else _socket_path(layout, upstream or ""),
        )
        _check_sockets(layout, config)
        _record(layout, config, stop_holders=stop_holders, like=source)
    return config


def _record(
    layout: Layout, config: RepoConfig, *, stop_holders: bool, like: RepoConfig | None = None
) -> None:
    """Let the repo exist. The caller holds the lock of `changing`."""
    files = RepoFiles(layout)
    check_free(files, config.name)
    if not config.managed:
        _check_upstream_free(layout, config)
        _check_preconditions(config)
        if not stop_holders:
            _check_holders(config)
    with Journal(layout, SystemClock()).creating(config, like=like):
        files.save(config, like=None if like is None else like.name)
    make_directory(layout.repo(config.guid).directory)
    make_directory(layout.repo(config.guid).cdi_spec_dir)


def check_free(files: RepoFiles, name: RepoName) -> None:
    """Refuse a name that a repo has, even one whose file is broken.

    Raises:
        RepoExistsError: it is taken.
    """
    if name in files.names():
        raise RepoExistsError(f"there is a repo '{name}' already", hint=f"'rdc repo show {name}' shows it")


def new_name(text: str) -> RepoName:
    """A name that a new repo may have; shorter than those that a file may give, to be told from a GUID.

    Raises:
        UsageError: it is none.
    """
    if "@" in text or len(text) > NAME_LIMIT:
        raise UsageError(
            f"'{text}' is not a repo name",
            hint=f"use letters, digits, '.', '_' and '-', at most {NAME_LIMIT}, without a machine",
        )
    try:
        return parse_repo_name(text)
    except MalformedError as exc:
        raise UsageError(exc.message, hint=exc.hint) from exc


def find(layout: Layout, reference: str) -> RepoConfig:
    """The repo that a ref names, by name or GUID.

    Raises:
        UsageError: the ref is malformed.
        NotFoundError: there is no such repo, or it names another machine; the hint lists candidates.
    """
    ref = RepoRef.parse(reference)
    files = RepoFiles(layout)
    names = files.names()
    require_local(ref, names)
    if ref.is_guid:
        by_guid = files.list().by_guid(ref.name)
        if by_guid is not None:
            return by_guid
    if ref.name not in names:
        raise _nothing_set_up(layout, ref) if not layout.repos_dir.exists() else unknown_repo(ref.name, names)
    return files.read(RepoName(ref.name))


def _nothing_set_up(layout: Layout, ref: RepoRef) -> NotFoundError:
    return NotFoundError(
        f"there is no repo '{ref.name}': nothing was set up below {layout.root}",
        hint=f"--root or {ROOT_VARIABLE} names another root; 'rdc repo create {ref.name}' makes one here",
    )


class RepoNames(Mapping[RepoGuid, str]):
    """Repo names by GUID, read when first asked for: few commands need them, and reading is slow."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._names: dict[RepoGuid, str] | None = None
        self._known: dict[RepoGuid, str] = {}

    def learn(self, repo: RepoConfig) -> None:
        """The repo's file was read anyway: its name costs no reading of all the others."""
        self._known[RepoGuid(repo.guid)] = repo.name

    def __getitem__(self, guid: RepoGuid) -> str:
        return self._known[guid] if guid in self._known else self._read()[guid]

    def __iter__(self) -> Iterator[RepoGuid]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> dict[RepoGuid, str]:
        if self._names is None:
            self._names = {RepoGuid(each.guid): each.name for each in RepoFiles(self._layout).list().repos}
        return self._names


def up_lock(layout: Layout) -> Path:
    """The lock (`base.run_lock`) of whoever keeps a root's managed daemons."""
    return layout.run_dir / "up.lock"


def keeps_daemons(layout: Layout) -> bool:
    """Whether `renet up` runs on this root."""
    return is_held(up_lock(layout))


def upstream_socket(layout: Layout, config: RepoConfig) -> Path:
    """The socket of the daemon behind the repo's gate."""
    return layout.repo(config.guid).daemon_socket if config.managed else Path(config.upstream)


def describe_briefly(layout: Layout, config: RepoConfig) -> dict[str, str | bool]:
    """What `rdc repo list` tells, without asking anybody."""
    paths = layout.repo(config.guid)
    return {
        "name": config.name,
        "guid": config.guid,
        "socket": str(paths.socket),
        "upstream": f"unix://{upstream_socket(layout, config)}",
        "managed": config.managed,
        "cdi_spec_dir": str(paths.cdi_spec_dir),
        "trust": str(config.trust),
    }


def describe(layout: Layout, config: RepoConfig) -> dict[str, str | bool | tuple[str, ...] | None]:
    """What `rdc repo show` tells: where things are, how it is set up, and what answers now."""
    paths = layout.repo(config.guid)
    socket = upstream_socket(layout, config)
    return {
        **describe_briefly(layout, config),
        "log": str(layout.daemon_log(config.guid)) if config.managed else None,
        "socket_group": config.socket_group,
        "bind_roots": config.policy.bind_roots,
        "config": str(RepoFiles(layout).path(config.name)),
        "gate": _heard(paths.socket, Daemon(paths.socket).accepts()),
        "daemon": _heard(socket, Daemon(socket).answers()),
    }


def _heard(socket: Path, answers: bool) -> str:
    """In a word what asking gave: silence tells nothing to somebody who may not ask."""
    if answers:
        return "answers"
    try:
        socket.stat()
    except PermissionError:
        return "unknown"
    except OSError:
        return "down"
    return "down" if os.access(socket, os.W_OK) else "unknown"


@contextmanager
def changing(layout: Layout) -> Iterator[None]:
    """Let one process at a time look for a name or a repo's file, and take or change it."""
    make_directory(layout.repos_dir)
    path = layout.repos_dir / ".lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise AccessError(f"cannot open {path}: {exc.strerror}", hint="run it as root") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _configured(layout: Layout, new: NewRepo) -> RepoConfig:
    """The repo as its file will say, checked by reading that file."""
    name = new_name(new.name)
    _check_group(new.group)
    try:
        config = RepoConfig(
            name=name,
            guid=str(uuid.uuid4()),
            upstream=MANAGED if new.upstream is None else _socket_path(layout, new.upstream),
            trust=new.trust,
            socket_group=new.group,
            policy=RepoPolicy(bind_roots=tuple(_bind_root(each) for each in new.bind_roots)),
        )
        return RepoConfig.parse(config.to_yaml(), source=f"repo {new.name}")
    except MalformedError as exc:
        raise UsageError(exc.message, hint=exc.hint) from exc


def _socket_path(layout: Layout, address: str) -> str:
    path = address.removeprefix("unix://")
    if not address.startswith("unix:///"):
        raise UsageError(
            f"upstream '{address}' is not a unix socket", hint="write it as unix:///path/to/docker.sock"
        )
    if len(path.encode()) > UNIX_PATH_MAX:
        raise UsageError(f"upstream '{address}' is longer than the {UNIX_PATH_MAX} bytes of a socket path")
    if Path(path).parent.parent == layout.run_dir and Path(path).name == "docker.sock":
        raise UsageError(f"upstream '{address}' is a gate's own socket", hint="give the daemon's")
    if Path(path).exists() and not Path(path).is_socket():
        raise UsageError(f"upstream '{address}' is not a socket", hint="give the daemon's")
    return path


def _bind_root(text: str) -> str:
    """The folder itself, links resolved: a link could later point elsewhere."""
    folder = Path(text)
    if not folder.is_absolute():
        raise UsageError(f"bind root '{text}' is not an absolute path")
    if not folder.is_dir():
        raise NotFoundError(f"bind root '{text}' is not a directory", hint=f"'mkdir -p {text}' makes it")
    return str(folder.resolve())


def _check_group(group: str | None) -> None:
    if group is None or group.isdecimal():
        return
    try:
        grp.getgrnam(group)
    except KeyError as exc:
        raise NotFoundError(f"there is no group '{group}'", hint=f"'groupadd {group}' makes it") from exc


def _check_sockets(layout: Layout, config: RepoConfig) -> None:
    socket = layout.repo(config.guid).socket
    excess = len(str(socket).encode()) - UNIX_PATH_MAX
    if excess > 0:
        longest = len(str(layout.root).encode()) - excess
        raise RefusedError(
            f"root {layout.root} is too deep: socket path {socket} is {excess} bytes too long",
            hint=f"use a root of at most {longest} bytes (--root or RDC_ROOT)",
        )
    if config.managed:
        from machine.managed import managed_daemon  # noqa: PLC0415 - most commands start no daemon

        managed_daemon(layout, config, {}).check_root()


def _check_upstream_free(layout: Layout, config: RepoConfig) -> None:
    """Two repos on one daemon would see each other's containers, and each the other's devices."""
    wanted = Path(config.upstream).resolve()
    for other in RepoFiles(layout).list().repos:
        if upstream_socket(layout, other).resolve() == wanted:
            raise RefusedError(
                f"repo '{other.name}' uses the daemon at {config.upstream} already",
                hint="give each repo a daemon of its own: leave --upstream out",
            )


def _check_preconditions(config: RepoConfig) -> None:
    """Refuse a daemon that gives hardware past any gate; of one that is down nothing is known."""
    try:
        fatal = [each for each in Daemon(Path(config.upstream)).unmet_preconditions() if each.fatal]
    except RdcError:
        return
    if fatal:
        raise RefusedError(
            f"the daemon at {config.upstream} cannot be gated: " + "; ".join(each.detail for each in fatal),
            hint="; ".join(each.remedy for each in fatal),
        )


def _check_holders(config: RepoConfig) -> None:
    """Nothing is granted to a repo that is new: its gate stops whatever holds hardware, without asking."""
    try:
        runs = Daemon(Path(config.upstream)).runs(config.policy)
    except RdcError:
        return
    holding = [
        f"{run.name}: " + "; ".join((*map(str, run.devices), *(each.detail for each in run.raw)))
        for run in runs
        if run.devices or run.raw
    ]
    if holding:
        raise RefusedError(
            f"containers of the daemon at {config.upstream} hold hardware ({', '.join(holding)}), and a gate"
            " stops what holds a device without a grant",
            hint="end them first, or add --stop-holders",
        )
