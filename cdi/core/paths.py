"""Path text without a file system. Pure. Source: Go's `filepath.Clean`."""


def clean(path: str) -> str:
    """The shortest path that means the same by text alone: no `.`, no `//`, `..` taken back; `.` if empty."""
    rooted = path.startswith("/")
    kept: list[str] = []
    for part in path.split("/"):
        if part in {"", "."}:
            continue
        if part == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif part != ".." or not rooted:
            kept.append(part)
    text = "/".join(kept)
    return f"/{text}" if rooted else text or "."
