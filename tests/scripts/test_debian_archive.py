"""How the scripts read a machine's apt sources, and which engine they choose."""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.engine import REPOSITORY

SCRIPTS = REPOSITORY / "scripts"


def load(name: str, file: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(name, str(SCRIPTS / file))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def archive() -> Iterator[ModuleType]:
    yield load("debian_archive", "debian_archive.py")
    del sys.modules["debian_archive"]


@pytest.fixture
def install_engine(archive: ModuleType) -> Iterator[ModuleType]:
    load("engine_files", "engine_files.py")
    yield load("install_engine", "install-engine")
    del sys.modules["engine_files"], sys.modules["install_engine"]


KEY = """Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEY
 -----END PGP PUBLIC KEY BLOCK-----"""

SOURCES = {
    "deb822": (
        "a.sources",
        (
            "# a comment\nTypes: deb deb-src\nURIs: http://mirror.test/debian\nSuites: bookworm "
            "bookworm-updates\n"
            "Components: main contrib\nSigned-By: /usr/share/keyrings/key.gpg\n"
        ),
        ("http://mirror.test/debian", "main contrib", "/usr/share/keyrings/key.gpg"),
    ),
    "embedded key": (
        "a.sources",
        f"Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm\nComponents: main\n{KEY}\n",
        ("http://mirror.test/debian", "main", KEY.removeprefix("Signed-By:")),
    ),
    "one line": (
        "a.list",
        "deb http://mirror.test/debian bookworm main non-free-firmware # why\n",
        ("http://mirror.test/debian", "main non-free-firmware", ""),
    ),
    "one line with options": (
        "a.list",
        "deb [ arch=amd64 signed-by=/k.gpg ] http://mirror.test/debian bookworm main\n",
        ("http://mirror.test/debian", "main", "/k.gpg"),
    ),
    "by status": (
        "a.list",
        "deb http://mirror.test/debian stable main\n",
        ("http://mirror.test/debian", "main", ""),
    ),
    "disabled, security and source entries do not count": (
        "a.sources",
        (
            "Types: deb\nURIs: http://no.test/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n\n"
            "Types: deb-src\nURIs: http://no.test/debian\nSuites: bookworm\nComponents: main\n\n"
            "Types: deb\nURIs: http://no.test/debian-security\nSuites: bookworm\nComponents: main\n\n"
            "Types: deb\nURIs: http://no.test/debian\nSuites: bookworm\nComponents: contrib\n\n"
            "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm\nComponents: main\n"
        ),
        ("http://mirror.test/debian", "main", ""),
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_own_source(archive: ModuleType, tmp_path: Path, name: str) -> None:
    file, text, expected = SOURCES[name]
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / file).write_text(text)
    source = archive.own_source("bookworm", tmp_path)
    assert (source.uris, source.components, source.signed_by) == expected


def test_an_old_style_sources_list_is_read(archive: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb http://mirror.test/debian bookworm main\n")
    assert archive.own_source("bookworm", tmp_path).uris == "http://mirror.test/debian"


@pytest.mark.parametrize("text", ["", "deb http://mirror.test/debian trixie main\n", "deb cdrom main\n"])
def test_no_source_is_an_error(archive: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / "sources.list").write_text(text)
    with pytest.raises(archive.ArchiveError):
        archive.own_source("bookworm", tmp_path)


def test_the_stanza_of_another_suite_reads_back(archive: ModuleType, tmp_path: Path) -> None:
    source = archive.Source("http://mirror.test/debian", "main", KEY.removeprefix("Signed-By:"))
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "x.sources").write_text(source.stanza("forky"))
    assert archive.own_source("forky", tmp_path) == source


class FakeSuite:
    def __init__(self, name: str, version: str | Exception | None) -> None:
        self.name = name
        self._version = version

    def candidate(self, package: str) -> str | None:
        if isinstance(self._version, Exception):
            raise self._version
        return self._version


class FakeMachine:
    def __init__(self, versions: dict[str, str | Exception | None]) -> None:
        self._versions = versions

    def debian(self, suite: str) -> FakeSuite:
        return FakeSuite(suite, self._versions.get(suite))


@pytest.mark.parametrize(
    ("slot", "versions", "expected"),
    [
        ("28", {"forky": "28.5.2+dfsg4-5", "sid": "29.1.0-1", "trixie": "26.1.5+dfsg1-9"}, "forky"),
        ("28", {"forky": "29.1.0-1", "sid": "28.9.0-1"}, "sid"),
        ("28", {"forky": "29.1.0-1", "sid": "30.0.0-1", "trixie": "26.1.5"}, "forky"),
        ("28", {"trixie": "26.1.5+dfsg1-9"}, "trixie"),
        ("28", {"trixie": "20.10.24"}, None),
        ("26", {"trixie": "26.1.5+dfsg1-9", "forky": "28.5.2"}, "trixie"),
        ("26", {"trixie": "28.0.0", "forky": "1:25.0.5"}, "forky"),
        ("26", {"trixie": "28.0.0"}, None),
    ],
)
def test_choice_of_the_suite(
    install_engine: ModuleType, slot: str, versions: dict[str, str | None], expected: str | None
) -> None:
    first = next(install_engine.choose(FakeMachine(dict(versions)), install_engine.SLOTS[slot]), None)
    assert (first[0].name if first else None) == expected


def test_an_unreadable_suite_is_not_passed_over(archive: ModuleType, install_engine: ModuleType) -> None:
    machine = FakeMachine({"forky": archive.ArchiveError("no network"), "trixie": "26.1.5"})
    with pytest.raises(archive.ArchiveError):
        next(install_engine.choose(machine, install_engine.SLOTS["28"]))


def test_an_absent_suite_is_passed_over(archive: ModuleType, install_engine: ModuleType) -> None:
    machine = FakeMachine({"forky": archive.NoSuiteError("404"), "sid": "28.5.2"})
    assert next(install_engine.choose(machine, install_engine.SLOTS["28"]))[0].name == "sid"
