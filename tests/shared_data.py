"""The corpora with known right answers that lie beside a checkout, where they are present."""

from pathlib import Path

_SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared(*parts: str) -> Path | None:
    """The path of a shared corpus, or None where this checkout has none beside it."""
    path = _SHARED.joinpath(*parts)
    return path if path.exists() else None
