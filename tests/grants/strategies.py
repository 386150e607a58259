"""Hypothesis strategies of grants."""

from datetime import UTC, datetime

from hypothesis import strategies as st

from cdi.core.names import QualifiedName
from cdi.core.pin import Pin
from cdi.core.resolve import NodeId
from grants.core.model import VRAM_MB_MAX, Grant, Isolation, RepoGuid, Sharing

_DEVICE = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.:-]{0,8}[A-Za-z0-9])?", fullmatch=True)
_KIND = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,5}[A-Za-z0-9]", fullmatch=True)
_TEXT = st.text(max_size=30).filter(str.isprintable)
_INSTANTS = st.integers(0, 250_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))


def guids() -> st.SearchStrategy[RepoGuid]:
    return st.from_regex(r"[0-9A-Za-z][0-9A-Za-z_-]{0,6}", fullmatch=True).map(RepoGuid)


def names() -> st.SearchStrategy[QualifiedName]:
    return st.builds(QualifiedName, _KIND, _KIND, _DEVICE)


def nodes() -> st.SearchStrategy[NodeId]:
    numbers = st.none() | st.integers(0, 2**20 - 1)
    known = st.builds(
        NodeId,
        path=st.integers(0, 3).map(lambda n: f"/dev/nvidia{n}"),
        type=st.sampled_from("cb"),
        major=numbers,
        minor=numbers,
    )
    missing = st.builds(NodeId, path=_TEXT.map(lambda text: f"/dev/{text}"))
    return known | missing


def pins() -> st.SearchStrategy[Pin]:
    texts = st.lists(_TEXT, max_size=2).map(tuple)
    return st.builds(Pin, uuids=texts, pci=texts, nodes=st.lists(nodes(), max_size=3).map(tuple))


def grants() -> st.SearchStrategy[Grant]:
    """Any grant that the rules let through."""
    return st.builds(
        Grant,
        repo=guids(),
        device=names(),
        sharing=st.sampled_from(Sharing),
        isolation=st.none() | st.sampled_from(Isolation),
        vram_mb=st.none() | st.integers(1, VRAM_MB_MAX),
        expires_at=st.none() | _INSTANTS,
        granted_at=_INSTANTS,
        granted_by=_TEXT,
        note=_TEXT,
        pin=pins(),
    )
