"""The shape of the repository: tests mirror packages, files are short, no machine or registry is named."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import REPOSITORY

PACKAGES = ("base", "cdi", "cli", "gate", "grants", "machine")
MAX_LINES = 400
# Modules that another module's tests cover, a line each: module, test file. It may only shrink: a module that
# got a test file of its own must leave it, and a new module comes with its test.
EXCEPTIONS = REPOSITORY / "tests" / "mirror_exceptions.txt"
MOST_EXCEPTIONS = 12
SOURCE_ENDINGS = frozenset({".py", ".c", ".h"})
CHECKED_ENDINGS = SOURCE_ENDINGS | {"", ".json", ".lock", ".md", ".sh", ".toml", ".txt", ".yaml", ".yml"}
NOT_OURS = frozenset(
    {".coverage", ".git", ".venv", ".cache", ".hypothesis", "build", "results", "__pycache__"}
)
# Put together here, as the names themselves must not stand in any file.
REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("snapshot", "debian", "org"),
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
    )
)
MACHINE_PATHS = tuple(
    "/".join(("", *parts)) for parts in (("work", "main"), ("work", "shared"), ("tmp", "plan"))
)


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            if path.name != "__init__.py":
                yield path.relative_to(REPOSITORY)


def expected_test(module: Path) -> Path:
    """`gate/core/policy.py` -> `tests/gate/test_policy.py`: only packages part pure code from shells."""
    folders = [part for part in module.parts[:-1] if part != "core"]
    return Path("tests", *folders, f"test_{module.stem.rstrip('_')}.py")


def has_own_test(module: Path) -> bool:
    """A large module's tests may be parted: `test_create_binds.py` is one of `create.py`."""
    expected = REPOSITORY / expected_test(module)
    return expected.is_file() or any(expected.parent.glob(f"{expected.stem}_*.py"))


def exceptions() -> dict[str, str]:
    lines = EXCEPTIONS.read_text(encoding="utf-8").splitlines()
    return {line.split()[0]: line.split()[1] for line in lines if line and not line.startswith("#")}


def own_files() -> Iterator[Path]:
    for path in sorted(REPOSITORY.rglob("*")):
        relative = path.relative_to(REPOSITORY)
        foreign = any(part in NOT_OURS or part.endswith((".egg-info", "_cache")) for part in relative.parts)
        if not foreign and path.is_file() and path.suffix in CHECKED_ENDINGS:
            yield relative


def test_every_module_has_its_test_file() -> None:
    without = {str(module) for module in modules() if not has_own_test(module)}
    assert without == set(exceptions())


def test_exceptions_only_shrink() -> None:
    excepted = exceptions()
    assert len(excepted) <= MOST_EXCEPTIONS
    assert {test for test in excepted.values() if not (REPOSITORY / test).is_file()} == set()


def test_files_are_short() -> None:
    sources = [path for path in own_files() if path.suffix in SOURCE_ENDINGS or path.parts[0] == "scripts"]
    lengths = {str(path): len((REPOSITORY / path).read_text().splitlines()) for path in sources}
    assert lengths
    assert {path: count for path, count in lengths.items() if count > MAX_LINES} == {}


def test_no_file_names_a_registry_or_a_machine_path() -> None:
    pattern = re.compile("|".join(re.escape(name) for name in (*REGISTRIES, *MACHINE_PATHS)))
    found = {}
    for path in own_files():
        text = (REPOSITORY / path).read_text(encoding="utf-8", errors="replace")
        if hit := pattern.search(text):
            found[str(path)] = text[: hit.start()].count("\n") + 1
    assert found == {}


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("gate/core/policy.py", "tests/gate/test_policy.py"),
        ("gate/http/parse.py", "tests/gate/http/test_parse.py"),
        ("gate/core/exec_.py", "tests/gate/test_exec.py"),
        ("base/clock.py", "tests/base/test_clock.py"),
    ],
)
def test_mirror(module: str, test: str) -> None:
    assert expected_test(Path(module)) == Path(test)
