"""Reads packages of any Debian suite without touching the machine's own apt state.

Mirror and trust come from the machine's own apt sources (deb822 ``.sources`` and one-line ``.list`` files),
so no host is named here; apt verifies every index and package against the same keyring as the machine's own.
Standard library only: it runs before the virtual environment exists.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

APT_DIR = Path("/etc/apt")
# Daemons and dpkg lie in sbin, which a plain user or a cron job has not on its path.
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
SEARCH_PATH = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
_ROLLING_NAMES = frozenset({"stable", "oldstable", "testing", "unstable", "sid"})
_ONE_LINE = re.compile(
    r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<components>.*)$"
)
_UNTRUSTED = re.compile(r"NO_PUBKEY|not signed|Missing key|verify signature|EXPKEYSIG")


class ArchiveError(Exception):
    """The archive could not give what was asked; the text is for people."""


class NoSuiteError(ArchiveError):
    """The mirror does not have the suite; anything else that keeps it from being read may pass."""


@dataclass(frozen=True, slots=True)
class Source:
    """The machine's own entry: where packages come from and which key signs them.

    ``signed_by`` is the field's value as apt wants it back (a path, or an embedded key with its folding), or
    empty when the machine relies on apt's global keyring.
    """

    uris: str
    components: str
    signed_by: str

    def stanza(self, suite: str) -> str:
        """A deb822 stanza for another suite of the same mirror."""
        lines = ["Types: deb", f"URIs: {self.uris}", f"Suites: {suite}", f"Components: {self.components}"]
        if self.signed_by:
            lines.append(f"Signed-By: {self.signed_by}")
        return "\n".join(lines) + "\n"


def os_release(path: Path = Path("/etc/os-release")) -> Mapping[str, str]:
    """The fields of os-release(5); empty when the file is missing."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {key: value.strip("\"'") for key, value in pairs}


def deb822_stanzas(text: str) -> Iterator[dict[str, str]]:
    """The stanzas of a deb822 file with lower-case field names; continuation lines keep their folding."""
    fields: dict[str, str] = {}
    last = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, last = {}, ""
        elif line[0] in " \t" and last:
            fields[last] += "\n" + line
        elif ":" in line:
            last, value = line.split(":", 1)
            last = last.strip().lower()
            fields[last] = value.strip()


def _from_deb822(text: str) -> Iterator[tuple[str, Source]]:
    for fields in deb822_stanzas(text):
        enabled = fields.get("enabled", "yes").lower() not in {"no", "false", "0"}
        if not enabled or "deb" not in fields.get("types", "").split():
            continue
        uris = " ".join(fields.get("uris", "").split())
        source = Source(uris, fields.get("components", ""), fields.get("signed-by", ""))
        for suite in fields.get("suites", "").split():
            yield suite, source


def _from_list(text: str) -> Iterator[tuple[str, Source]]:
    for raw in text.splitlines():
        match = _ONE_LINE.match(raw.split("#", 1)[0].strip())
        if match is None:
            continue
        options = dict(part.split("=", 1) for part in (match["options"] or "").split() if "=" in part)
        signed_by = options.get("signed-by", "").replace(",", " ")
        yield match["suite"], Source(match["uri"], match["components"].strip(), signed_by)


def machine_sources(apt_dir: Path = APT_DIR) -> Iterator[tuple[str, Source]]:
    """Every enabled binary source of the machine as (suite, source), in apt's reading order."""
    parts = apt_dir / "sources.list.d"
    files = [apt_dir / "sources.list", *sorted(parts.glob("*.list")), *sorted(parts.glob("*.sources"))]
    for path in files:
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            yield from _from_deb822(text) if path.suffix == ".sources" else _from_list(text)


def own_source(codename: str, apt_dir: Path = APT_DIR) -> Source:
    """The machine's entry for its own release.

    Raises ArchiveError when no source serves it.
    """
    candidates = [
        source
        for suite, source in machine_sources(apt_dir)
        if (suite == codename or suite in _ROLLING_NAMES)
        and "main" in source.components.split()
        and not re.search(r"security", source.uris)
    ]
    if not candidates:
        raise ArchiveError(f"no apt source of this machine serves {codename or 'a Debian release'} main")
    return replace(candidates[0], components=" ".join(candidates[0].components.split()))


class Suite:
    """One suite read through an apt state of its own under ``state``; nothing else is written."""

    def __init__(self, name: str, source: Source, state: Path, *, against_installed: bool = False) -> None:
        """Resolve dependencies against the machine's installed packages when ``against_installed``."""
        self.name = name
        self._source = source
        self._state = state / name
        self._config = self._state / "apt.conf"
        self._status = Path("/var/lib/dpkg/status") if against_installed else self._state / "status"
        self._ready = False

    def candidate(self, package: str) -> str | None:
        """The version this suite has of ``package``, or None."""
        self._update()
        found = self._apt("apt-cache", "show", "--no-all-versions", package, check=False)
        match = re.search(r"^Version: (\S+)$", found.stdout, re.MULTILINE)
        return match[1] if match else None

    def missing(self, packages: Sequence[str]) -> tuple[str, ...]:
        """``packages`` and their dependencies that the machine has not installed, as apt resolves them."""
        self._update()
        options = ("--print-uris", "-qq", "-y", "--no-install-recommends", "--no-remove")
        return tuple(sorted(file.split("_", 1)[0] for file in self._files("install", *options, *packages)))

    def extract(self, packages: Sequence[str], root: Path) -> None:
        """Download and verify ``packages`` and unpack them under ``root``; nothing is installed."""
        self._update()
        debs = self._state / "debs"
        debs.mkdir(exist_ok=True)
        root.mkdir(parents=True, exist_ok=True)
        if packages:
            # What an interrupted run left is taken up again: apt checks it like a new download.
            self._apt("apt-get", "download", "-q", *packages, cwd=debs)
            for file in self._files("download", "--print-uris", "-qq", *packages):
                _run(("dpkg", "-x", str(debs / file), str(root)))

    def _files(self, *command: str) -> list[str]:
        lines = self._apt("apt-get", *command).stdout.splitlines()
        return [line.split()[1] for line in lines if line.startswith("'")]

    def _update(self) -> None:
        if self._ready:
            return
        self._write_config(self._source)
        done = self._apt("apt-get", "update", "-q", "--error-on=any", check=False)
        if done.returncode and _UNTRUSTED.search(done.stderr + done.stdout):
            # The machine's keyring may be older than the suite; its own suite carries the newer one, signed
            # by a key that the machine does trust.
            self._write_config(replace(self._source, signed_by=str(self._newer_keyring())))
            done = self._apt("apt-get", "update", "-q", "--error-on=any", check=False)
        if done.returncode:
            absent = re.search(r"\b404\b|does not have a Release file", done.stderr + done.stdout)
            error = NoSuiteError if absent else ArchiveError
            raise error(f"cannot read suite {self.name}: {_last_lines(done)}")
        self._ready = True

    def _newer_keyring(self) -> Path:
        codename = os_release().get("VERSION_CODENAME", "")
        if self.name == codename:
            raise ArchiveError(f"the indexes of {codename} are not signed by a key this machine trusts")
        own = Suite(codename, self._source, self._state)
        root = self._state / "keyring"
        own.extract(("debian-archive-keyring",), root)
        return root / "usr/share/keyrings/debian-archive-keyring.gpg"

    def _write_config(self, source: Source) -> None:
        for folder in ("lists/partial", "cache/archives/partial", "empty"):
            (self._state / folder).mkdir(parents=True, exist_ok=True)
        (self._state / "status").touch()
        sources = self._state / "suite.sources"
        sources.write_text(source.stanza(self.name), encoding="utf-8")
        arch = _run(("dpkg", "--print-architecture")).stdout.strip()
        self._config.write_text(
            "\n".join(
                [
                    f'Dir::Etc::sourcelist "{sources}";',
                    f'Dir::Etc::sourceparts "{self._state}/empty";',
                    f'Dir::Etc::preferences "{self._state}/empty/none";',
                    f'Dir::Etc::preferencesparts "{self._state}/empty";',
                    f'Dir::State::status "{self._status}";',
                    f'Dir::State::lists "{self._state}/lists";',
                    f'Dir::State::extended_states "{self._state}/extended_states";',
                    f'Dir::Cache "{self._state}/cache";',
                    'Acquire::Languages "none";',
                    'Acquire::Retries "3";',
                    'APT::Sandbox::User "root";',  # the state lies where apt's own user may not reach
                    'Debug::NoLocking "1";',
                    "#clear APT::Default-Release;",
                    "#clear APT::Architectures;",
                    f'APT::Architectures {{ "{arch}"; }};',
                    # Hooks of the machine (images delete /var/cache/apt in one) are not ours to run.
                    "#clear APT::Update::Pre-Invoke;",
                    "#clear APT::Update::Post-Invoke;",
                    "#clear APT::Update::Post-Invoke-Success;",
                    "",
                ]
            ),
            encoding="utf-8",
        )

    def _apt(
        self, tool: str, *arguments: str, cwd: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        done = _run((tool, "-c", str(self._config), *arguments), cwd=cwd, check=False)
        if check and done.returncode:
            raise ArchiveError(f"{tool} {' '.join(arguments)} ({self.name}): {_last_lines(done)}")
        return done


def _last_lines(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + done.stderr).splitlines()
    telling = [line for line in lines if line.startswith(("E:", "W:", "Err"))]
    return "; ".join(telling[-4:]) or f"exit status {done.returncode}"


def _run(
    command: Sequence[str], *, cwd: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(
            command, cwd=cwd, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "PATH": SEARCH_PATH},
        )  # fmt: skip
    except OSError as exc:
        raise ArchiveError(f"{command[0]} cannot be run: {exc.strerror}") from exc
    if check and done.returncode:
        raise ArchiveError(f"{' '.join(command)}: {_last_lines(done)} {done.stderr.strip()}")
    return done
