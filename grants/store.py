"""The grant store: one JSON file, changed under one machine-wide lock, readable without it.

Each write is read, rules, write: a temporary file in the same folder, fsync, rename, fsync of the folder,
so a process killed at any instant leaves the old document or the new one. The generation before the last is
kept beside it (`grants.json.bak`). A document that cannot be trusted is refused with the way to recover,
and nothing is written over it. Source: design sections 4, 6 and 10.
"""

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from base.clock import Clock
from base.errors import AccessError, DamagedError, MalformedError, RdcError
from base.files import MAX_DOCUMENT_BYTES, fsync_directory, make_directory, write_atomic
from base.layout import Layout
from cdi.core.catalog import Catalog
from cdi.core.resolve import Probe
from grants.core import codec, rules
from grants.core.machine import MachineView
from grants.core.model import Grant, GrantRequest, RepoGuid
from grants.core.renewal import Renewal, regrant, require_confirmed
from grants.core.rules import Change
from grants.core.table import GrantTable
from grants.lock import locked

LOCK_TIMEOUT_S = 30.0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a transaction did, or with `dry_run` would have done.

    Args:
        table: the grants afterwards.
        change: what was granted, replaced, revoked and dropped, and warnings.
        written: True when the store was replaced, and `table` is on disk.
    """

    table: GrantTable
    change: Change
    written: bool


class GrantStore:
    """The machine's grants.

    Args:
        layout: where the store lies.
        clock: tells `granted_at` and which grants have ended.
        lock_timeout_s: how long a writer waits for another one.
        journal: entered with each change under the lock before it is written, and left when that is on disk
            or has failed; what it raises on entering keeps the change from being made.
    """

    def __init__(
        self,
        layout: Layout,
        clock: Clock,
        *,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        journal: Callable[[Change], AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        self._path = layout.grants
        self._backup = layout.grants.with_name(layout.grants.name + ".bak")
        self._lock = layout.grants.with_name(layout.grants.name + ".lock")
        self._clock = clock
        self._lock_timeout_s = lock_timeout_s
        self._journal = journal
        self._reader = codec.DocumentReader()

    def read(self) -> GrantTable:
        """All grants, as the last write that was completed left them. Takes no lock.

        A store that was never written is the empty table.

        Raises:
            DamagedError: the document cannot be trusted; the hint tells how to recover.
            AccessError: it cannot be read, is no regular file, or may be written by others than its owner.
        """
        raw = self._read_bytes(self._path)
        if raw is None:
            if not self._backup.exists():
                return GrantTable.empty()
            # A backup means that the document was there before. Only one that is still missing now is lost:
            # the first two writes may have come between our looks.
            raw = self._read_bytes(self._path)
        if raw is None:
            raise DamagedError(
                f"{self._path} is gone, but not {self._backup}", hint=self._recovery(gone=True)
            )
        try:
            return self._reader.parse(raw)
        except codec.UnknownVersionError as exc:
            raise DamagedError(
                f"{self._path}: {exc.message}",
                hint="a newer version wrote it: use that version; nothing was changed",
            ) from exc
        except MalformedError as exc:
            raise DamagedError(f"{self._path}: {exc.message}", hint=self._recovery(gone=False)) from exc

    def fingerprint(self) -> Hashable:
        """A value that every write changes, for one stat; None while there is no store.

        Raises:
            AccessError: the file's folder may not be entered.
        """
        try:
            return _fingerprint(self._path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise AccessError(f"cannot look at {self._path}: {exc.strerror}") from exc

    def grant(
        self,
        requests: Sequence[GrantRequest],
        *,
        load_catalog: Callable[[], Catalog],
        probe: Probe,
        repo_names: Mapping[RepoGuid, str],
        dry_run: bool = False,
    ) -> Outcome:
        """Grant every request or none; returns when the grants are on disk.

        Args:
            requests: what is asked for.
            load_catalog: reads the machine's specs; called under the lock, so that what is recorded was
                checked against the specs of that moment.
            probe: looks at device nodes.
            repo_names: names for messages; a repo that is missing is told by its GUID.
            dry_run: judge only. No lock is taken and nothing is written.

        Raises:
            GrantRefusedError: a rule is broken.
            RdcError: the store cannot be read, locked or written; see `read` and `locked`.
        """

        def change(table: GrantTable) -> Change:
            machine = MachineView(load_catalog(), probe)
            return rules.grant(table, requests, machine, repo_names, self._clock.now())

        return self._transact(change, dry_run=dry_run)

    def regrant(
        self,
        renewal: Renewal,
        *,
        load_catalog: Callable[[], Catalog],
        probe: Probe,
        repo_names: Mapping[RepoGuid, str],
        confirmed: Sequence[Grant] | None,
    ) -> Outcome:
        """Pin drifted grants to what their names mean now, all or none; see `renewal.regrant`.

        Args:
            renewal: which.
            load_catalog: as for `grant`.
            probe: as for `grant`.
            repo_names: as for `grant`.
            confirmed: the grants that a judgement without it showed; None judges only, as a dry run does.

        Raises:
            ChangedMeanwhileError: the result would not be what was confirmed.
            RdcError: as for `grant`, and see `renewal.regrant`.
        """

        def change(table: GrantTable) -> Change:
            machine = MachineView(load_catalog(), probe)
            made = regrant(table, renewal, machine, repo_names, self._clock.now())
            if confirmed is not None:
                require_confirmed(made, confirmed)
            return made

        return self._transact(change, dry_run=confirmed is None)

    def revoke(
        self,
        repo: RepoGuid,
        devices: Iterable[str],
        *,
        repo_names: Mapping[RepoGuid, str],
        dry_run: bool = False,
    ) -> Outcome:
        """Take every named grant from the repo or none; returns when that is on disk.

        Raises:
            NotGrantedError: the repo does not hold one of them.
            RdcError: as for `grant`.
        """
        names = tuple(devices)
        return self._transact(
            lambda table: rules.revoke(table, repo, names, repo_names, self._clock.now()), dry_run=dry_run
        )

    def revoke_all(self, repo: RepoGuid, *, dry_run: bool = False) -> Outcome:
        """Take every grant from the repo, for `--all` and for a repo that is deleted; none is no error.

        Raises:
            RdcError: as for `grant`.
        """
        return self._transact(lambda table: rules.revoke_all(table, repo, self._clock.now()), dry_run=dry_run)

    def _transact(self, decide: Callable[[GrantTable], Change], *, dry_run: bool) -> Outcome:
        if dry_run:
            change = decide(self.read())
            return Outcome(table=change.table, change=change, written=False)
        with self._writing():
            old = self.read()
            change = decide(old)
            if not change.changes:
                return Outcome(table=old, change=change, written=False)
            table = change.table.next_generation()
            with self._journal(change):
                self._write(self._reader.encode(table))
        return Outcome(table=table, change=change, written=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self._make_folder()
        with locked(self._lock, timeout_s=self._lock_timeout_s):
            yield

    def _make_folder(self) -> None:
        """Make the store's folder where it is missing, on disk as surely as what will be written into it."""
        folder = self._path.parent
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        if missing:
            make_directory(folder)
            for each in missing:
                fsync_directory(each.parent)

    def _write(self, document: bytes) -> None:
        """Replace the document; whatever fails, the old one is still there.

        Only a failing fsync of the folder comes after the replacement: then it may have taken place.
        """
        if len(document) > MAX_DOCUMENT_BYTES:
            raise RdcError(
                f"the grants would take {len(document)} bytes, the store holds at most {MAX_DOCUMENT_BYTES}",
                hint="revoke grants that nobody uses ('rdc repo gpu list')",
            )
        try:
            self._sweep()
            write_atomic(self._path, document, modified_ns=self._keep_previous())
        except OSError as exc:
            raise self._write_error(exc) from exc

    def _write_error(self, exc: OSError) -> RdcError:
        message = f"cannot write {self._path}: {exc.strerror}"
        if exc.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            return AccessError(message, hint="the grant store is written by root, on a writable filesystem")
        return RdcError(
            message, hint=f"make room below {self._path.parent} and try again: no earlier grant is lost"
        )

    def _sweep(self) -> None:
        """Remove what a killed writer left. The lock is ours, so no living writer's file is among it."""
        for left in self._path.parent.glob(f".{self._path.name}.*.tmp"):
            left.unlink(missing_ok=True)

    def _keep_previous(self) -> int:
        """Give the document a second name, which becomes the only one once it is replaced.

        Returns the modification time that its successor must have: later than its own, whatever the clock
        says, so that no two generations have one fingerprint.
        """
        now_ns = int(self._clock.now().timestamp()) * 10**9
        try:
            previous_ns = self._path.lstat().st_mtime_ns
        except FileNotFoundError:
            return now_ns
        second = self._path.with_name(f".{self._path.name}.previous.tmp")
        try:
            second.hardlink_to(self._path)
        except OSError as exc:
            if exc.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK}:
                raise
            write_atomic(second, self._path.read_bytes())  # a filesystem without hard links
        second.replace(self._backup)
        fsync_directory(self._path.parent)
        return max(now_ns, previous_ns + 1)

    def _read_bytes(self, path: Path) -> bytes | None:
        """The document's bytes, or None when there is none."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as exc:
            if exc.errno == errno.ELOOP:
                raise AccessError(
                    f"{path} is a symlink", hint="put the file itself there: a write would replace the link"
                ) from exc
            raise AccessError(f"cannot read {path}: {exc.strerror}") from exc
        try:
            self._check_owner(path, os.fstat(descriptor))
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                data = stream.read(MAX_DOCUMENT_BYTES + 1)
        except OSError as exc:
            raise AccessError(f"cannot read {path}: {exc.strerror}") from exc
        finally:
            os.close(descriptor)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise DamagedError(
                f"{path} is larger than {MAX_DOCUMENT_BYTES} bytes", hint=self._recovery(gone=False)
            )
        return data

    def _check_owner(self, path: Path, seen: os.stat_result) -> None:
        """Refuse a document that somebody else than root or we could have written: it gives devices away."""
        quoted = shlex.quote(str(path))
        if not stat.S_ISREG(seen.st_mode):
            raise AccessError(f"{path} is no regular file", hint="move it away")
        if seen.st_mode & _WRITABLE_BY_OTHERS:
            mode = stat.S_IMODE(seen.st_mode)
            raise AccessError(
                f"{path} may be written by others (mode {mode:04o})",
                hint=f"look through it ('rdc repo gpu list' after 'chmod 0644 {quoted}')",
            )
        if seen.st_uid not in {0, os.geteuid()}:
            raise AccessError(
                f"{path} belongs to user {seen.st_uid}",
                hint=f"look through it, then 'chown root {quoted}'",
            )

    def _recovery(self, *, gone: bool) -> str:
        """Commands that bring back the generation before the last, or start anew when that is no good."""
        path, backup = shlex.quote(str(self._path)), shlex.quote(str(self._backup))
        aside = "" if gone else f"mv {path} {path}.damaged && "
        try:
            raw = self._read_bytes(self._backup)
            previous = codec.parse(raw) if raw is not None else None
        except RdcError:
            previous = None
        if previous is not None:
            anew = f"; to start without grants instead: '{aside}mv {backup} {backup}.old'"
            return (
                f"nothing was changed; to go back to generation {previous.generation} "
                f"({len(previous)} grants): '{aside}cp -p {backup} {path}'" + (anew if gone else "")
            )
        if gone:
            return f"'mv {backup} {backup}.old' starts without grants; then grant again"
        return f"nothing was changed; mend the file, or start without grants: '{aside}rm -f {backup}'"


def _fingerprint(seen: os.stat_result) -> Hashable:
    return (
        seen.st_dev,
        seen.st_ino,
        seen.st_size,
        seen.st_mtime_ns,
        seen.st_ctime_ns,
        seen.st_mode,
        seen.st_uid,
    )
