"""The repos of a machine as files: `etc/rediacc/repos/<name>.yaml`, and `gate.yaml`.

Source: design section 4. One broken file is that repo's problem and nobody else's: it is reported beside the
repos that could be read. Two files with one GUID are both reported and neither is served, because their
grants, sockets and daemons would be one.
"""

import contextlib
import dataclasses
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from base.errors import (
    AccessError,
    DamagedError,
    NotFoundError,
    RdcError,
    RefusedError,
    UsageError,
)
from base.files import fsync_directory, make_directory, read_bytes, remove_durably, write_atomic
from base.layout import Layout
from gate.core.repo import GateConfig, RepoConfig, RepoName, parse_repo_name
from gate.core.repo_text import claimed_guid, edited

LOCAL = "local"
_FILE_LIMIT_BYTES = 1024 * 1024
_SUFFIX = ".yaml"
_GUID_PREFIX = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{7,63}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoListing:
    """What the repos folder holds: repos by name, and the files that could not be used, by path."""

    repos: tuple[RepoConfig, ...]
    problems: Mapping[Path, RdcError]

    def by_guid(self, guid: str) -> RepoConfig | None:
        """The repo with this GUID."""
        return next((repo for repo in self.repos if repo.guid == guid), None)


class RepoFiles:
    """Reads and writes the repos of one machine. Holds nothing between calls."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def list(self) -> RepoListing:
        """Every repo that can be read, sorted by name, and the problems of the rest."""
        repos: list[RepoConfig] = []
        problems: dict[Path, RdcError] = {}
        for path in self._paths():
            try:
                repos.append(self._read(path))
            except RdcError as exc:
                problems[path] = exc
        guids = [repo.guid for repo in repos]
        unique = []
        for repo in repos:
            if guids.count(repo.guid) == 1:
                unique.append(repo)
                continue
            others = ", ".join(other.name for other in repos if other.guid == repo.guid and other is not repo)
            problems[self.path(repo.name)] = DamagedError(
                f"repo {repo.name} has the GUID {repo.guid}, and so has {others}",
                hint="a GUID names one repo for ever; remove the file that is a copy",
            )
        return RepoListing(repos=tuple(unique), problems=MappingProxyType(problems))

    def names(self) -> tuple[RepoName, ...]:
        """The names of all files that are named like a repo, in order; none of them is read."""
        return tuple(RepoName(path.name.removesuffix(_SUFFIX)) for path in self._paths())

    def read(self, name: RepoName) -> RepoConfig:
        """One repo by name, at the price of one file however many there are.

        That no other file claims its GUID is not looked at: the gate, which serves neither of two, does.

        Raises:
            NotFoundError: there is no such file.
            MalformedError: it cannot be understood.
        """
        return self._read(self.path(name))

    def find(self, ref: str) -> RepoConfig:
        """The one repo that `NAME[@local]`, a GUID, or at least eight characters of one mean.

        Raises:
            MalformedError: the ref cannot be a ref, or the file it names cannot be read.
            UsageError: it names another machine, or could mean several repos; the hint lists them.
            NotFoundError: it means none.
        """
        name, at, machine = ref.partition("@")
        if at and machine != LOCAL:
            raise UsageError(
                f"{ref} names machine {machine!r}, and this is {LOCAL}",
                hint=f"write {name} or {name}@{LOCAL}",
            )
        listing = self.list()
        candidates = {repo.guid: repo for repo in listing.repos if name in {repo.name, repo.guid}}
        if not candidates and _GUID_PREFIX.match(name):
            candidates = {repo.guid: repo for repo in listing.repos if repo.guid.startswith(name)}
        if len(candidates) > 1:
            words = ", ".join(f"{repo.name} ({repo.guid})" for repo in candidates.values())
            raise UsageError(f"{name!r} could mean several repos", hint=f"use one of: {words}")
        if candidates:
            return next(iter(candidates.values()))
        self._explain_missing(name, listing)
        known = ", ".join(repo.name for repo in listing.repos) or "none yet"
        raise NotFoundError(f"there is no repo {name!r}", hint=f"repos of this machine: {known}")

    def save(self, repo: RepoConfig, *, replace: bool = False, like: RepoName | None = None) -> None:
        """Write a repo's file, durably.

        Args:
            repo: the repo.
            replace: whether a file of that name may exist.
            like: a repo whose file's comments and order the new one shall have, as far as they fit.

        Raises:
            RefusedError: the name or the GUID belongs to another repo, or `replace` is false and it exists.
        """
        path = self.path(repo.name)
        if path.exists() and not replace:
            raise RefusedError(
                f"repo {repo.name} exists", hint=f"look at it with 'rdc repo show {repo.name}'"
            )
        owner = self.list().by_guid(repo.guid)
        if owner is not None and owner.name != repo.name:
            raise RefusedError(f"GUID {repo.guid} belongs to repo {owner.name}", hint="choose a new GUID")
        make_directory(self._layout.repos_dir)
        write_atomic(path, repo.to_yaml() if like is None else edited(self.text(like), repo))

    def text(self, name: RepoName) -> bytes:
        """A repo's file as it is, whether it can be understood or not.

        Raises:
            NotFoundError: there is no such file.
            AccessError: it cannot be read.
        """
        return read_bytes(self.path(name), limit=_FILE_LIMIT_BYTES)

    def rename(self, repo: RepoConfig, name: RepoName) -> RepoConfig:
        """Give a repo another name, durably; returns it as it is now.

        Interrupted anywhere, there is one file, which can be read, under the old name or under the new one.

        Raises:
            RefusedError: the name belongs to another repo.
            RdcError: something cannot be read or written.
        """
        old, new = self.path(repo.name), self.path(name)
        if new.exists():
            raise RefusedError(f"repo {name} exists", hint=f"look at it with 'rdc repo show {name}'")
        # The file first says both names, then gets the new one in one step, then forgets the old one.
        write_atomic(old, edited(self.text(repo.name), repo, renaming_to=name))
        try:
            old.rename(new)
        except OSError as exc:
            raise AccessError(f"cannot rename {old}: {exc.strerror}") from exc
        fsync_directory(new.parent)
        renamed = dataclasses.replace(repo, name=name)
        with contextlib.suppress(RdcError, OSError):  # only for people: the file is right as it is
            write_atomic(new, edited(self.text(name), renamed))
        return renamed

    def claiming(self, guid: str) -> tuple[RepoName, ...]:
        """The names of all files that say this GUID, those that cannot be understood included."""
        found = []
        for name in self.names():
            with contextlib.suppress(RdcError):
                raw = self.text(name)
                if guid.encode() in raw and claimed_guid(raw) == guid:
                    found.append(name)
        return tuple(found)

    def delete(self, name: RepoName) -> None:
        """Remove a repo's file, if it exists, durably."""
        if self.path(name).exists():
            remove_durably(self.path(name))

    def gate_config(self) -> GateConfig:
        """The machine's `gate.yaml`; defaults where there is none.

        Raises:
            MalformedError: it is there and cannot be read.
        """
        try:
            raw = read_bytes(self._layout.gate_config, limit=_FILE_LIMIT_BYTES)
        except NotFoundError:
            return GateConfig()
        return GateConfig.parse(raw, source=str(self._layout.gate_config))

    def fingerprint(self) -> Hashable:
        """Changes whenever a repo's file may have changed: names, inodes, sizes, modification times."""
        found = []
        for path in self._paths():
            try:
                status = path.stat()
            except OSError:
                found.append((path.name, -1, -1, -1))
                continue
            found.append((path.name, status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(found)

    def _paths(self) -> "tuple[Path, ...]":
        try:
            entries = sorted(self._layout.repos_dir.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as exc:
            raise AccessError(f"cannot read directory {self._layout.repos_dir}: {exc.strerror}") from exc
        return tuple(path for path in entries if path.suffix == _SUFFIX and not path.name.startswith("."))

    def path(self, name: str) -> Path:
        """Where a repo's file lies."""
        return self._layout.repos_dir / f"{name}{_SUFFIX}"

    def _read(self, path: Path) -> RepoConfig:
        return _parse(read_bytes(path, limit=_FILE_LIMIT_BYTES), str(path), path.name.removesuffix(_SUFFIX))

    def _explain_missing(self, name: str, listing: RepoListing) -> None:
        """Raise what is wrong with the file that the name would have meant."""
        parse_repo_name(name)
        problem = listing.problems.get(self.path(name))
        if problem is not None:
            raise problem


@lru_cache(maxsize=4096)
def _parse(raw: bytes, source: str, file_name: str) -> RepoConfig:
    """Remembered by content: a gate that follows a thousand repos reads one that changed, not all."""
    return RepoConfig.parse(raw, source=source, file_name=file_name)
