"""A repo's own dockerd: preparing its files, starting or adopting it, stopping it and cleaning up after it.

Everything here blocks; `machine.up` calls it from threads. One caller per repo at a time: whoever holds the
lock of `renet up`, or `rdc repo delete` when nobody does.
"""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from base.errors import AccessError, NotFoundError, RdcError, RefusedError, UnreachableError
from base.files import make_directory, read_bytes, write_atomic
from base.layout import Layout
from base.mountinfo import covers, parse_mountinfo
from machine import network
from machine.core import subnets
from machine.core.daemon_config import (
    DaemonPlan,
    arguments,
    check_socket_paths,
    daemon_json,
    environment,
)
from machine.core.settings import EngineSettings, NetworkMode
from machine.docker import Daemon
from machine.engine import Engine, find_engine, find_tool
from machine.process import Process, children, kill_now, processes
from machine.view import HIDDEN, View, guards, launch, sees, unguarded, widen, wrap_runc

LOG = logging.getLogger("machine.daemon")

STOP_TIMEOUT_S = 40.0
"""dockerd gives containers 15 s to end, then kills them; the rest is its own."""

_VALIDATE_TIMEOUT_S = 20
_LOG_LIMIT_BYTES = 16 * 1024 * 1024
_PID_LIMIT_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedDaemon:
    """One repo's daemon; `runtimes` are OCI runtimes that the repo's policy names besides runc.

    Two that differ in the repo's name or bind roots alone are equal: nothing has to be started anew for it.

    `environ` is where the engine is looked for, and what the daemon inherits proxies from. `bind_roots` are
    host paths below which the daemon must follow no link, see `confine`.
    """

    layout: Layout
    guid: str
    name: str = field(compare=False)
    settings: EngineSettings
    environ: Mapping[str, str] = field(compare=False, repr=False)
    runtimes: tuple[str, ...] = ()
    bind_roots: tuple[str, ...] = field(default=(), compare=False)

    @property
    def log(self) -> Path:
        """Where the daemon writes: named after what never changes, so that a renamed repo keeps it."""
        return self.layout.daemon_log(self.guid)

    @property
    def exec_root(self) -> Path:
        """A short path, because containerd's sockets lie deep below it; only root may enter its parent."""
        return self.layout.run_dir / "x" / self.guid.replace("-", "")[:12]

    def start(self) -> Process:
        """Start the daemon, or adopt the one that runs already with exactly this configuration.

        Returns before it answers; see `ready`.

        Raises:
            RdcError: there is no engine, it refuses its configuration, or something cannot be made.
        """
        engine = self._engine()
        plan = self._prepare(engine)
        content = daemon_json(plan)
        config_file = Path(plan.config_file)
        running = self._running()
        if running is not None:
            if _content(config_file) == content and sees(running.pid, self._view()):
                return running
            _end(running)
        self._clean_up_after_daemon()
        write_atomic(config_file, content, mode=0o600)
        variables = environment(self.environ, plan)
        self._validate(engine, plan, variables)
        self._rotate_log()
        command = launch(self._view(), arguments(str(engine.dockerd), plan))
        return Process.spawn(command, env=variables, log=self.log, cwd=config_file.parent)

    def confine(self, process: Process) -> None:
        """Let the running daemon follow no link below the bind roots of now; it goes on running.

        To be called again and again: a root that is removed and made anew has lost what was done to it. Roots
        that are no longer listed stay as they are, as what may be bound is for the gate to say.

        Raises:
            RdcError: that cannot be had; the gate then admits no bind below that root.
        """
        missing = unguarded(process.pid, guards(self.bind_roots)) if self.bind_roots else ()
        if missing and process.alive:
            self._link_tools(self.layout.repo(self.guid).private / "bin", self._engine())
            widen(process.pid, replace(self._view(), guards=missing, hidden=()))

    def ready(self, process: Process) -> bool:
        """Whether the daemon answers yet; once it does, only root may connect to its socket.

        Raises:
            UnreachableError: it has ended.
        """
        socket = self.layout.repo(self.guid).daemon_socket
        if not process.alive:
            raise UnreachableError(
                f"the daemon of repo {self.name} {process.exit_words}: {self._last_words()}",
                hint=f"see {self.log}",
            )
        if not socket.exists() or not Daemon(socket).answers():
            return False
        socket.chmod(0o600)
        return True

    def stop(self, process: Process | None = None) -> None:
        """Stop the daemon and whatever it left; nothing happens when it does not run.

        Args:
            process: the daemon as `start` returned it, when it is known; closed.

        Raises:
            UnreachableError: a process survives SIGKILL.
        """
        if process is not None:
            _end(process)
        running = self._running()
        if running is not None:
            _end(running)
        self._clean_up_after_daemon()
        self._take_down_network()

    @property
    def running(self) -> bool:
        """Whether the daemon's process exists."""
        process = self._running()
        if process is None:
            return False
        process.close()
        return True

    def remove(self) -> None:
        """Delete everything that the daemon had: run-time files, network, images, containers, volumes.

        Raises:
            RefusedError: something is still mounted below its directories.
            AccessError: something cannot be removed.
        """
        self.stop()
        paths = self.layout.repo(self.guid)
        for tree in (self.exec_root, paths.directory, paths.state):
            _remove_tree(tree)
        for log in (self.log, self.log.with_suffix(".log.1")):
            log.unlink(missing_ok=True)

    def check_root(self) -> None:
        """Refuse a root too deep for the daemon's sockets.

        Raises:
            RefusedError: with the longest root that would do.
        """
        socket, exec_root = str(self.layout.repo(self.guid).daemon_socket), str(self.exec_root)
        check_socket_paths(socket=socket, exec_root=exec_root, root=str(self.layout.root))

    @property
    def _engine_dir(self) -> Path | None:
        return Path(self.settings.dir) if self.settings.dir is not None else None

    def _engine(self) -> Engine:
        return find_engine(self._engine_dir, self.environ)

    def _view(self) -> View:
        paths = self.layout.repo(self.guid)
        return View(
            guards=guards(self.bind_roots),
            own=(str(paths.directory), str(paths.state), str(self.exec_root)),
            hidden=(str(self.layout.run_dir), str(self.layout.state_dir), *HIDDEN),
        )

    def _prepare(self, engine: Engine) -> DaemonPlan:
        paths = self.layout.repo(self.guid)
        data_root = paths.state / "docker"
        self.check_root()
        pool = network.pool_of(self.layout, self.guid, self.settings.address_pool)
        own = network.Network(guid=self.guid, base=self.settings.address_pool, pool=pool, tools=engine.tools)
        plan = DaemonPlan(
            guid=self.guid,
            config_file=str(paths.private / "daemon.json"),
            socket=str(paths.daemon_socket),
            pid_file=str(paths.private / "dockerd.pid"),
            data_root=str(data_root),
            exec_root=str(self.exec_root),
            home=str(paths.state),
            bin_dir=str(paths.private / "bin"),
            cdi_spec_dir=str(paths.cdi_spec_dir),
            pools=tuple(str(each) for each in subnets.user_pools(pool)),
            bridge=own.bridge if self._bring_up(own) else None,
            runtimes={name: str(self._runtime(name)) for name in self.runtimes},
            storage_driver=self.settings.storage_driver,
            docker_proxy=_text(engine.tools.get("docker-proxy")),
            docker_init=_text(engine.tools.get("docker-init")),
        )
        make_directory(self.layout.run_dir)
        make_directory(paths.directory)
        make_directory(paths.private, mode=0o700)
        make_directory(paths.cdi_spec_dir)
        make_directory(self.exec_root.parent, mode=0o700)
        make_directory(self.exec_root, mode=0o711)
        make_directory(self.layout.audit_log.parent)
        make_directory(paths.state, mode=0o711)
        make_directory(data_root, mode=0o710)
        make_directory(data_root / "tmp", mode=0o700)
        self._link_tools(paths.private / "bin", engine)
        return plan

    def _bring_up(self, own: network.Network) -> bool:
        """Set up the default bridge where there is to be one; whether there is.

        Below a private root `auto` means none: tests and demos must not touch the machine's network.
        """
        mode = self.settings.network
        if mode is NetworkMode.NONE or (mode is NetworkMode.AUTO and self.layout.root != Path("/")):
            return False
        obstacle = network.usable(own.tools)
        try:
            if not obstacle:
                own.up()
                return True
        except UnreachableError as exc:
            own.down()
            obstacle = exc.message
        if mode is NetworkMode.BRIDGE:
            hint = f"set 'engine: {{network: none}}' in {self.layout.gate_config}, or mend that"
            raise RefusedError(f"repo {self.name} cannot have a bridge: {obstacle}", hint=hint)
        LOG.warning("daemon.no-bridge repo=%s %s", self.name, obstacle)
        return False

    def _runtime(self, name: str) -> Path:
        program = find_tool(name, self._engine_dir, self.environ)
        if program is None:
            raise NotFoundError(
                f"runtime '{name}' that repo {self.name} may use is not installed",
                hint=f"install it, or take it out of runtimes in {self.layout.repos_dir / self.name}.yaml",
            )
        return program

    def _link_tools(self, folder: Path, engine: Engine) -> None:
        """Fill the daemon's PATH: links to the tools it may find, and nothing else.

        What is right stays: a daemon that is about to be adopted may look for a tool at any moment.
        """
        make_directory(folder, mode=0o700)
        wanted = {name: str(target) for name, target in engine.tools.items()}
        if self.bind_roots:
            wrap_runc(folder, Path(wanted.pop("runc")))
        for entry in folder.iterdir():
            if self.bind_roots and entry.name == "runc":
                continue
            if not entry.is_symlink() or str(entry.readlink()) != wanted.get(entry.name):
                entry.unlink()
        for name, target in wanted.items():
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(target)

    def _validate(self, engine: Engine, plan: DaemonPlan, variables: Mapping[str, str]) -> None:
        command = (*arguments(str(engine.dockerd), plan), "--validate")
        try:
            done = subprocess.run(
                command,
                env=dict(variables),
                capture_output=True,
                text=True,
                check=False,
                timeout=_VALIDATE_TIMEOUT_S,
            )
        except (OSError, subprocess.SubprocessError) as exc:
            raise UnreachableError(f"{engine.dockerd} cannot check its configuration: {exc}") from exc
        if done.returncode != 0:
            said = done.stderr.strip().rpartition(": ")[2]
            raise RefusedError(
                f"dockerd {engine.version} refuses the configuration of repo {self.name}: {said}",
                hint=f"see {plan.config_file}; engine settings stand in {self.layout.gate_config}",
            )

    def _running(self) -> Process | None:
        """The daemon's process. Its PID file is only a hint: it may be stale, or not be written yet."""
        private = self.layout.repo(self.guid).private
        expected = ("dockerd", "--config-file", str(private / "daemon.json"))
        try:
            hint: tuple[int, ...] = (int(read_bytes(private / "dockerd.pid", limit=_PID_LIMIT_BYTES)),)
        except (RdcError, ValueError):
            hint = ()
        for pid in (*hint, *(pid for pid, words in processes() if words[1:] == expected[1:])):
            process = Process.adopt(pid, expected)
            if process is not None:
                return process
        return None

    def _clean_up_after_daemon(self) -> None:
        """What a daemon leaves when it was killed: containerd, shims, their containers, socket."""
        mark = f"{self.exec_root}/"
        for pid, words in processes():
            program = words[0].rpartition("/")[2] if words else ""
            if program.startswith("containerd") and any(mark in word for word in words):
                for each in (*children(pid), pid):
                    kill_now(each)
        private = self.layout.repo(self.guid).private
        for stale in (private / "dockerd.pid", private / "dockerd.sock"):
            stale.unlink(missing_ok=True)
        (self.exec_root / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def _take_down_network(self) -> None:
        pool = network.kept_pool(self.layout, self.guid)
        if pool is not None:
            found = {name: find_tool(name, self._engine_dir, self.environ) for name in ("ip", "iptables")}
            tools = {name: path for name, path in found.items() if path is not None}
            base = self.settings.address_pool
            network.Network(guid=self.guid, base=base, pool=pool, tools=tools).down()

    def _rotate_log(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT_BYTES:
                self.log.replace(self.log.with_suffix(".log.1"))

    def _last_words(self) -> str:
        with contextlib.suppress(OSError), self.log.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 4096))
            lines = [line for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
            if lines:
                return lines[-1]
        return "it wrote nothing"


def _end(process: Process) -> None:
    """SIGTERM, then SIGKILL.

    Raises:
        UnreachableError: it survives both.
    """
    process.send(signal.SIGTERM)
    if not process.wait(STOP_TIMEOUT_S):
        process.send(signal.SIGKILL)
        if not process.wait(STOP_TIMEOUT_S):
            raise UnreachableError(f"process {process.pid} cannot be stopped")
    process.close()


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except RdcError:
        return b""


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _mounts_below(tree: Path) -> tuple[str, ...]:
    """Mount points at or below a directory, deepest first."""
    mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())
    points = (mount.point for mount in mounts if covers(str(tree), mount.point))
    return tuple(sorted(points, key=len, reverse=True))


def _remove_tree(tree: Path) -> None:
    for point in _mounts_below(tree):
        subprocess.run(("umount", "-l", point), check=False, capture_output=True, timeout=_VALIDATE_TIMEOUT_S)
    left = _mounts_below(tree)
    if left:
        raise RefusedError(f"{left[0]} is still mounted", hint=f"'umount {left[0]}', then delete again")
    try:
        if tree.exists():
            shutil.rmtree(tree)
    except OSError as exc:
        raise AccessError(
            f"cannot remove {exc.filename or tree}: {exc.strerror}", hint="delete again"
        ) from exc
