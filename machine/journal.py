"""What an operator does, told to the audit log: who did it, and before it counts.

What gives something away (a grant, a new repo) is recorded first and not done when that fails. What takes
something away (a revoke, a stop, a deletion) is done in any case; that the log misses it is told at the end.
A change that was recorded and then failed gets a second line that says so.
"""

import contextlib
import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from base.clock import Clock
from base.errors import RdcError
from base.layout import Layout
from gate.audit import AuditLog
from gate.core.audit_chain import Actor, AuditedRepo, Entry, Event
from gate.core.repo import RepoConfig
from grants.core.broken import GrantRefusedError
from grants.core.model import Grant, RepoGuid, format_instant
from grants.core.rules import Change
from machine.core.engine_info import Holder

_LOGIN_UID = Path("/proc/self/loginuid")
_NO_LOGIN = 2**32 - 1
_NO_NAMES: Mapping[RepoGuid, str] = {}


class UnrecordedError(RdcError):
    """It was done, but the audit log does not tell of it."""

    code = "unrecorded"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"it was done, but the audit log does not tell of it: {reason}",
            hint="mend what keeps the log from being written, and keep a note of this change",
        )


class Journal:
    """One command's way into the audit log.

    Args:
        layout: the machine's files.
        clock: tells when things happen.
        names: repo names by GUID; a repo that is missing is told by its GUID.
        actor: who acts; the operator who runs this process when None.
    """

    def __init__(
        self,
        layout: Layout,
        clock: Clock,
        names: Mapping[RepoGuid, str] = _NO_NAMES,
        actor: Actor | None = None,
    ) -> None:
        self._actor = actor or operator()
        self._clock = clock
        self._names = names
        self._log = AuditLog(layout, clock, self._actor)
        self.failure = ""
        """Why something that was done is not recorded; empty when everything is."""

    @contextmanager
    def changing(self, change: Change) -> Iterator[None]:
        """The grant store's journal: the block writes the change.

        Raises:
            RdcError: a grant cannot be recorded, so it must not be made.
        """
        told = [
            *(self._grant(Event.GRANT_GRANTED, each) for each in change.granted),
            *(self._grant(Event.GRANT_REVOKED, each) for each in change.revoked),
            *(self._grant(Event.GRANT_EXPIRED, each) for each in change.expired),
        ]
        if change.granted:
            self._log.append(told)
        else:
            self._try(told)
        try:
            yield
        except BaseException:
            lost = (*change.granted, *change.revoked, *change.expired)
            self._try([self._grant(Event.GRANT_FAILED, each) for each in lost])
            raise

    @contextmanager
    def granting(self, repo: RepoConfig | None) -> Iterator[None]:
        """The block grants devices, None: to several repos; that the rules refuse it is recorded."""
        try:
            yield
        except GrantRefusedError as exc:
            rules = tuple(dict.fromkeys(each.rule.value for each in exc.broken))
            devices = ", ".join(dict.fromkeys(each.device for each in exc.broken if each.device))
            told = self._of_repo(Event.GRANT_REFUSED, repo, subject=devices, detail=exc.message)
            self._try([replace(told, rules=rules)])
            raise

    @contextmanager
    def creating(self, repo: RepoConfig, *, like: RepoConfig | None = None) -> Iterator[None]:
        """The block makes the repo, with the configuration of another one if that is given.

        Raises:
            RdcError: it cannot be recorded, so it must not be made.
        """
        upstream = "a daemon of its own" if repo.managed else f"before unix://{repo.upstream}"
        roots = f", bind roots {', '.join(repo.policy.bind_roots)}" if repo.policy.bind_roots else ""
        group = f", group {repo.socket_group}" if repo.socket_group else ""
        origin = f", forked from {like.name} ({like.guid})" if like is not None else ""
        detail = f"{upstream}, trust {repo.trust}{group}{roots}{origin}"
        self._log.append([self._of_repo(Event.REPO_CREATED, repo, detail=detail)])
        try:
            yield
        except BaseException:
            self._try([self._of_repo(Event.REPO_FAILED, repo, detail="could not be made")])
            raise

    @contextmanager
    def renaming(self, repo: RepoConfig, name: str) -> Iterator[None]:
        """The block gives the repo another name.

        Raises:
            RdcError: it cannot be recorded, so it must not be done: later lines go by the new name.
        """
        self._log.append([self._of_repo(Event.REPO_RENAMED, repo, subject=name, detail=f"now {name}")])
        try:
            yield
        except BaseException:
            told = self._of_repo(
                Event.REPO_FAILED, repo, subject=name, detail=f"could not be renamed to {name}"
            )
            self._try([told])
            raise

    def deleting(self, repo: RepoConfig, *, only_file: bool = False) -> None:
        """The repo is about to be deleted, or only a file that could not be used."""
        detail = "only its file" if only_file else ""
        self._try([self._of_repo(Event.REPO_DELETED, repo, detail=detail)])

    def stopped(self, repo: RepoConfig, holder: Holder) -> None:
        """A container was stopped because the operator said so."""
        detail = f"stopped {holder.name}, which held {', '.join(holder.devices)}"
        self._try([self._of_repo(Event.CONTAINER_STOPPED, repo, subject=holder.id, detail=detail)])

    def check(self) -> None:
        """Say what is missing.

        Raises:
            UnrecordedError: something that was done is not recorded.
        """
        if self.failure:
            raise UnrecordedError(self.failure)

    def _try(self, entries: Sequence[Entry]) -> None:
        try:
            self._log.append(entries)
        except RdcError as exc:
            self.failure = exc.message

    def _grant(self, event: Event, grant: Grant) -> Entry:
        terms = [str(grant.sharing)]
        if grant.isolation is not None:
            terms.append(f"isolation {grant.isolation}")
        if grant.vram_mb is not None:
            terms.append(f"{grant.vram_mb} MiB")
        if grant.expires_at is not None:
            terms.append(f"until {format_instant(grant.expires_at)}")
        note = f": {grant.note}" if grant.note else ""
        return Entry(
            at=self._clock.now(),
            event=event,
            actor=self._actor,
            repo=AuditedRepo(self._names.get(grant.repo, grant.repo), grant.repo),
            subject=str(grant.device),
            detail=f"{', '.join(terms)}, granted by {grant.granted_by}{note}",
        )

    def _of_repo(
        self, event: Event, repo: RepoConfig | None, *, subject: str = "", detail: str = ""
    ) -> Entry:
        return Entry(
            at=self._clock.now(),
            event=event,
            actor=self._actor,
            repo=None if repo is None else AuditedRepo(repo.name, repo.guid),
            subject=subject or ("" if repo is None else repo.name),
            detail=detail,
        )


def operator(environ: Mapping[str, str] = os.environ, login_uid: Path = _LOGIN_UID) -> Actor:
    """Who runs this process: its ids, who logged in according to the kernel, who called sudo."""
    return Actor(
        uid=os.getuid(),
        gid=os.getgid(),
        pid=os.getpid(),
        login=_login(login_uid),
        sudo_user=environ.get("SUDO_USER", ""),
    )


def _login(path: Path) -> str:
    """The name behind the kernel's login uid, which survives su and sudo; the number where it has none."""
    with contextlib.suppress(OSError, ValueError):
        uid = int(path.read_text())
        if uid != _NO_LOGIN:
            try:
                return pwd.getpwuid(uid).pw_name
            except KeyError:
                return str(uid)
    return ""
