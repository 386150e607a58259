"""Whether a repo's daemon may be served at all; stands before everything else that its gatekeeper does.

What was found counts as long as the watcher's event stream to that daemon stays open, because another daemon
may listen on the same path once it has ended; until the stream is open again, every request asks anew.
"""

import asyncio
import logging
from pathlib import Path

from base.errors import MalformedError, UnreachableError
from gate.core.denial import Denial
from gate.core.preconditions import Observed, Unmet, not_docker, refusal, unmet, unreadable_info
from gate.core.repo import RepoConfig
from gate.core.router import Matched
from gate.core.versions import meant_version
from gate.daemon import AnswerError, DaemonClient
from gate.local_daemon import daemon_process, empty_spec_dirs, open_to_everyone, resolved

_log = logging.getLogger(__name__)

ALWAYS_SERVED = frozenset({"system.ping", "system.ping_head", "system.version"})
"""What passes before any daemon: clients ask this first, and would word a refusal of it their own way."""


class DaemonGoneError(UnreachableError):
    """The repo's daemon cannot be reached; as the transport words it."""

    code = "daemon-unreachable"


class Guard:
    """The preconditions of one repo's daemon.

    Args:
        repo: the repo; its file says what is accepted.
        daemon: the gate's own line to the daemon.
        socket: the daemon's socket.
        projection: the repo's projection.
    """

    def __init__(self, repo: RepoConfig, daemon: DaemonClient, socket: Path, projection: Path) -> None:
        self.open = False
        """Whether requests may pass without asking; an attribute, because every request looks at it."""
        self.api_version: str | None = None
        """The version that requests without one get; None for the daemon's own."""
        self.findings: tuple[Unmet, ...] = ()
        self.seen = asyncio.Event()
        """Set by every look at the daemon that it answered, for whoever waits for it to come."""
        self._repo = repo
        self._daemon = daemon
        self._socket = socket
        self._projection = projection
        self._following = False
        self._known = False
        self._stream = 0
        self._denial: Denial | None = None
        self._failure: UnreachableError | None = None
        self._checking = asyncio.Lock()
        self._checks = 0

    @property
    def barred(self) -> bool:
        """Whether requests are refused now because of what was found."""
        return self._denial is not None

    @property
    def problem(self) -> str:
        """Why they are, in words; empty while they are not."""
        return "" if self._denial is None else self._denial.message()

    def configure(self, repo: RepoConfig) -> None:
        """The repo's file has changed."""
        self._repo = repo
        self._settle()

    async def followed(self) -> None:
        """The watcher has an open stream to the daemon: check it, and let what was found count from now on.

        Raises:
            UnreachableError: it does not answer.
        """
        self._following = True
        self._stream += 1
        await self.check()

    def lost(self) -> None:
        """The stream has ended: whoever listens next has to be asked."""
        self._following = self._known = self.open = False
        self._stream += 1

    async def admit(self, matched: Matched) -> Denial | None:
        """Why this request is refused whatever it asks; None when it may be decided on.

        Raises:
            UnreachableError: the daemon does not answer, so that nothing is known of it.
        """
        if matched.route.name in ALWAYS_SERVED:
            return None
        if not self._known:
            await self._check_after(self._checks)
        return self._denial

    async def check(self) -> None:
        """Look at the daemon now.

        Raises:
            UnreachableError: it does not answer.
        """
        await self._check_after(self._checks)

    async def _check_after(self, seen: int) -> None:
        """Check, unless one began after the caller came: many wait for one."""
        async with self._checking:
            if self._checks == seen:
                self._checks += 1
                await self._look()
        if self._failure is not None:
            raise self._failure

    async def _look(self) -> None:
        stream, self._failure = self._stream, None
        try:
            found = await self._findings()
        except UnreachableError as exc:
            self._known = self.open = False
            name = self._repo.name
            self._failure = DaemonGoneError(
                f"the Docker daemon of repo {name} at {self._socket} cannot be reached: {exc.message}",
                hint=f"ask the operator to check that it runs; 'rdc repo show {name}' names its socket",
            )
            return
        if found != self.findings:
            for each in found:
                _log.warning(
                    "gate.precondition repo=%s %s weight=%s %s",
                    self._repo.name, each.precondition, each.weight, each.detail,
                )  # fmt: skip
            if not found:
                _log.info("gate.preconditions_met repo=%s", self._repo.name)
        self.findings = found
        # What was asked before a stream ended or began may have been another daemon's answer.
        self._known = self._following and stream == self._stream
        self.seen.set()
        self._settle()

    async def _findings(self) -> tuple[Unmet, ...]:
        """What does not hold of whoever listens there now; sets `api_version`.

        Raises:
            UnreachableError: nobody does.
        """
        version = await self._version()
        self.api_version = None if version is None else meant_version(version.get("ApiVersion"))
        if version is None:
            return (not_docker(),)
        try:
            info = await self._daemon.info()
        except (AnswerError, MalformedError) as exc:
            return (unreadable_info(exc.message),)
        return unmet(info, await asyncio.to_thread(self._observe, info, version))

    async def _version(self) -> dict[str, object] | None:
        """The answer to `GET /version`, which every Docker daemon has; None from anything else."""
        try:
            version = await self._daemon.version()
        except (AnswerError, MalformedError):
            return None
        return version if "ApiVersion" in version else None

    def _observe(self, info: dict[str, object], version: dict[str, object]) -> Observed:
        projection = self._projection
        return Observed(
            version=version,
            projection=frozenset({str(projection), str(projection.resolve())}),
            spec_dirs=resolved(info.get("CDISpecDirs")),
            empty_dirs=empty_spec_dirs(self._socket, info.get("CDISpecDirs")),
            process=daemon_process(self._socket),
            open_socket=open_to_everyone(self._socket),
        )

    def _settle(self) -> None:
        self._denial = refusal(self.findings, self._repo.name, self._repo.accept)
        self.open = self._known and self._denial is None
