"""Reading, writing and judging CDI spec files, to the rules of the library that an engine vendors. Pure.

`parse_spec` is the one place where spec bytes become a `Spec`; holding one means that the named release of
the library loads it. Source: CDI SPEC.md and the verdicts of the library's releases 0.6.2 to 1.1.0.
"""

from collections.abc import Iterator
from itertools import islice

from cdi.core.build import NullElementError, Tokens, build_spec, problem_at
from cdi.core.encode import encode_spec
from cdi.core.fields import fold, spec_type
from cdi.core.go_json import Decoder
from cdi.core.library import Library
from cdi.core.model import NO_ANNOTATIONS, Device, Spec
from cdi.core.names import crashes_library
from cdi.core.problems import CRASH_CODES, ProblemCode, SpecError, SpecProblem
from cdi.core.rules import check
from cdi.core.yaml_nodes import MappingNode, Node, ScalarNode, SequenceNode, load

__all__ = [
    "CRASH_CODES",
    "NO_ANNOTATIONS",
    "Device",
    "ProblemCode",
    "Spec",
    "SpecError",
    "SpecProblem",
    "crashes_daemon",
    "encode_spec",
    "engines_loading",
    "engines_refusing",
    "parse_spec",
]

_MAX_PROBLEMS = 100
_POINTER_LISTS = ("deviceNodes", "mounts", "hooks", "netDevices")


def parse_spec(raw: bytes, *, library: Library = Library.V1_0_1) -> Spec:
    """Read a spec file's bytes, YAML or JSON, as `library` would.

    Raises:
        SpecError: the library would not load it, or would crash on it (codes in `CRASH_CODES`), or it
        exceeds our
            bounds. Its `problems` name every broken rule of the stage that failed, at most 100.
    """
    root = load(raw)
    if root is None or (isinstance(root, ScalarNode) and root.value is None):
        raise SpecError((SpecProblem(message="no spec data", code=ProblemCode.EMPTY, line=1, column=1),))
    crashes = tuple(islice(_crashes(root), _MAX_PROBLEMS))
    decoder = Decoder()
    fields = decoder.decode(root, spec_type(library), {}, None)
    if decoder.problems:
        raise SpecError((*crashes, *decoder.problems)[:_MAX_PROBLEMS])
    if not isinstance(fields, dict):
        raise SpecError((SpecProblem(message="no spec data", code=ProblemCode.EMPTY, line=1, column=1),))
    try:
        spec = build_spec(fields)
    except NullElementError as exc:
        raise SpecError(crashes or (_null_problem(root, exc.tokens),)) from exc
    problems: list[SpecProblem] = list(crashes)
    for finding in check(spec, library):
        if finding.code not in CRASH_CODES:
            problems.append(problem_at(root, finding.tokens, finding.message, finding.code))
        if len(problems) >= _MAX_PROBLEMS:
            break
    if problems:
        raise SpecError(tuple(problems))
    return spec


def crashes_daemon(raw: bytes) -> tuple[SpecProblem, ...]:
    """What in these bytes would make a library up to 1.1.0 panic: empty when nothing would.

    On the safe side: a one-letter vendor or class, or a null list element, counts although another error in
    the same file might be met first. Bytes that are no YAML cannot get that far.
    """
    try:
        root = load(raw)
    except SpecError:
        return ()
    return () if root is None else tuple(islice(_crashes(root), _MAX_PROBLEMS))


def engines_refusing(raw: bytes) -> dict[Library, tuple[SpecProblem, ...]]:
    """The releases that would not load these bytes, oldest first, each with its reasons."""
    refused: dict[Library, tuple[SpecProblem, ...]] = {}
    for library in Library:
        try:
            parse_spec(raw, library=library)
        except SpecError as exc:
            refused[library] = exc.problems
    return refused


def engines_loading(raw: bytes) -> tuple[Library, ...]:
    """The releases that load these bytes, oldest first; `Library.engine` names the Docker release of each."""
    refused = engines_refusing(raw)
    return tuple(library for library in Library if library not in refused)


def _null_problem(root: Node, tokens: Tokens) -> SpecProblem:
    return problem_at(
        root,
        tokens,
        "null where the library expects a value: it would crash the daemon that reads this file",
        ProblemCode.CRASH_NULL,
    )


def _crashes(root: Node) -> Iterator[SpecProblem]:
    for kind in _values(root, "kind"):
        if isinstance(kind, ScalarNode) and isinstance(kind.value, str):
            vendor, _, class_ = kind.value.partition("/")
            for text in (vendor, class_):
                if crashes_library(text):
                    yield problem_at(
                        root,
                        ("kind",),
                        f"{text!r} is one letter long: it would crash the daemon that reads this file",
                        ProblemCode.CRASH_ONE_LETTER,
                    )
    places: list[tuple[Node, Tokens]] = [
        (edits, ("containerEdits",)) for edits in _values(root, "containerEdits")
    ]
    for devices in _values(root, "devices"):
        for index, device in enumerate(devices.items if isinstance(devices, SequenceNode) else ()):
            places += [
                (edits, ("devices", index, "containerEdits")) for edits in _values(device, "containerEdits")
            ]
    for edits, at in places:
        yield from _null_elements(root, edits, at)


def _null_elements(root: Node, edits: Node, at: Tokens) -> Iterator[SpecProblem]:
    for name in _POINTER_LISTS:
        for values in _values(edits, name):
            for index, item in enumerate(values.items if isinstance(values, SequenceNode) else ()):
                if isinstance(item, ScalarNode) and item.value is None:
                    yield _null_problem(root, (*at, name, index))


def _values(node: Node, name: str) -> Iterator[Node]:
    """What the mapping holds under any spelling of the field."""
    if isinstance(node, MappingNode):
        for key, value in node.entries.items():
            if fold(key) == fold(name):
                yield value
