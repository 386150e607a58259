"""`renet cdi`: judge spec files and list what spec directories define, by a Docker engine's rules."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from base.errors import RdcError
from cdi.core.catalog import Catalog
from cdi.core.library import Library, library_of_engine
from cdi.core.problems import ProblemCode, SpecProblem
from cdi.core.spec import SpecError, parse_spec
from cdi.directories import SPEC_SUFFIXES, is_spec_name, load_catalog, read_spec_file
from cli.app import layout, output_format, output_option, root_option
from cli.render import Column, Format, Json, columns, emit, render_record, render_rows, say
from machine.core.daemon_config import version_in
from machine.engine import find_tool

if TYPE_CHECKING:
    from machine.config import MachineConfig

_EXIT_INVALID = 3
_VERSION_TIMEOUT_S = 20
_DEVICE_COLUMNS = (Column("DEVICE", "name"), Column("DEFINED IN", "path"))


@click.group()
def cdi() -> None:
    """Check and list CDI specs.

    The rules are those of the CDI library that the machine's Docker engine contains; --library chooses
    another release's: 0.6.2 (Docker 25.0), 0.7.2 (26), 0.8.0 (27.5 to 28.1), 1.0.1 (28.2), 1.1.0 (29.7).
    """


@cdi.command()
@click.option("--library", type=click.Choice([str(each) for each in Library]), help="Whose rules count.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@output_option
@root_option
def validate(library: str | None, files: tuple[Path, ...]) -> None:
    """Say for each FILE whether the engine would load it, which devices it defines, and what is wrong where.

    Ends with 3 when a file is not valid.
    """
    release = _release(library)
    verdicts = [_verdict(path, release) for path in files]
    form = output_format()
    if form is Format.TABLE:
        _print_verdicts(verdicts)
    else:
        emit(render_rows(verdicts, columns("file", "valid"), form))
    if not all(verdict["valid"] for verdict in verdicts):
        click.get_current_context().exit(_EXIT_INVALID)


@cdi.command("list")
@click.option("--library", type=click.Choice([str(each) for each in Library]), help="Whose rules count.")
@click.option(
    "--spec-dir",
    "spec_dirs",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A directory of specs; given several times, the later one wins.  [default: those of gate.yaml, else "
    "etc/cdi below the root]",
)
@output_option
@root_option
def list_(library: str | None, spec_dirs: tuple[Path, ...]) -> None:
    """List the devices that can be requested, and the files that define none because of an error."""
    directories = spec_dirs or _machine_directories()
    catalog = load_catalog(directories, library=_release(library))
    errors = {path: list(messages) for path, messages in catalog.errors.items()}
    for directory in spec_dirs:
        if not os.path.lexists(directory):
            # Engines take a directory that is not there for an empty one, so it is no entry of `errors`.
            say(f"renet: directory {_text(str(directory))} does not exist")
    _print_catalog(catalog, {_text(path): messages for path, messages in sorted(errors.items())})


def _release(library: str | None) -> Library:
    """The release asked for, else that of the machine's engine, else 1.0.1."""
    if library is not None:
        return Library(library)
    version = _engine_version()
    return Library.V1_0_1 if version is None else library_of_engine(version)


def _engine_version() -> str | None:
    """What the machine's dockerd calls itself; None when there is none that answers."""
    try:
        dockerd = find_tool("dockerd", _engine_directory(), os.environ)
        if dockerd is None:
            return None
        done = subprocess.run(
            (str(dockerd), "--version"),
            capture_output=True,
            text=True,
            check=True,
            timeout=_VERSION_TIMEOUT_S,
        )
    except (RdcError, OSError, subprocess.SubprocessError):
        return None
    return version_in(done.stdout) or None


def _engine_directory() -> Path | None:
    config = _machine_config()
    return None if config is None or config.engine.dir is None else Path(config.engine.dir)


def _machine_directories() -> tuple[Path, ...]:
    config = _machine_config()
    return (layout().cdi_spec_dir,) if config is None else config.cdi_spec_dirs


def _machine_config() -> "MachineConfig | None":
    """What gate.yaml says; None when there is none."""
    if not layout().gate_config.exists():
        return None
    from machine.config import load_machine_config  # noqa: PLC0415 - schemas cost 50 ms, only needed here

    return load_machine_config(layout())


def _verdict(path: Path, library: Library) -> dict[str, Json]:
    devices: list[str] = []
    problems: tuple[SpecProblem, ...] = ()
    try:
        spec = parse_spec(read_spec_file(path), library=library)
        devices = sorted(str(spec.qualified(device)) for device in spec.devices)
    except SpecError as exc:
        problems = exc.problems
    except RdcError as exc:
        problems = (SpecProblem(message=exc.message, code=ProblemCode.UNREADABLE),)
    if not is_spec_name(path.name) and not any(each.code is ProblemCode.UNREADABLE for each in problems):
        suffixes = " or ".join(SPEC_SUFFIXES)
        message = f"engines read only files whose names end in exactly {suffixes}"
        problems = (SpecProblem(message=message, code=ProblemCode.EXTENSION), *problems)
    return {
        "file": _text(str(path)),
        "valid": not problems,
        "devices": [] if problems else devices,
        "errors": [_problem(each) for each in problems],
    }


def _problem(problem: SpecProblem) -> Mapping[str, Json]:
    return {
        "line": problem.line,
        "column": problem.column,
        "pointer": problem.pointer,
        "message": problem.message,
        "code": str(problem.code),
    }


def _text(path: str) -> str:
    """A path as text that every output can hold: bytes that are no UTF-8 become U+FFFD."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _print_verdicts(verdicts: Sequence[Mapping[str, Json]]) -> None:
    rows: list[Mapping[str, Json]] = []
    for verdict in verdicts:
        devices, errors = verdict["devices"], verdict["errors"]
        if isinstance(devices, list) and verdict["valid"]:
            detail = ", ".join(str(name) for name in devices) or "no devices"
            rows.append({"file": verdict["file"], "verdict": "valid", "where": "", "detail": detail})
        if isinstance(errors, list):
            rows.extend(_error_row(verdict["file"], error) for error in errors if isinstance(error, Mapping))
    emit(render_rows(rows, columns("file", "verdict", "where", "detail"), Format.TABLE))


def _error_row(file: Json, error: Mapping[str, Json]) -> Mapping[str, Json]:
    where = f"{error['line']}:{error['column']}" if error["line"] is not None else ""
    at = f" (at {error['pointer']})" if error["pointer"] else ""
    return {
        "file": file,
        "verdict": "invalid",
        "where": where,
        "detail": f"{error['message']}{at} [{error['code']}]",
    }


def _print_catalog(catalog: Catalog, errors: Mapping[str, Sequence[str]]) -> None:
    names = sorted(catalog.devices)
    form = output_format()
    if form is Format.TABLE or form is Format.CSV:
        rows = [{"name": str(name), "path": _text(catalog.devices[name].path)} for name in names]
        emit(render_rows(rows, _DEVICE_COLUMNS, form))
        for path, messages in errors.items():
            for message in messages:
                say(f"{path}: {message}")
        return
    document: dict[str, Json] = {
        "devices": [str(name) for name in names],
        "errors": {path: list(messages) for path, messages in errors.items()},
    }
    emit(render_record(document, form))
