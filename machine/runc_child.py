"""What a daemon's `runc` is for a new container: lets it follow the links in its binds, then is the real one.

The daemon's own view follows no symbolic link below a bind root, and a mount that runc copies from there
inherits that. In a container a link can lead nowhere but the container, so there it is taken off again with
the mount option `rsymfollow`. It runs alone, by `python -I -S`, in the daemon's view; what fails here leaves
the mount as it is, or the container not started.

Source: OCI runtime specification, `mounts` of config.json; runc 1.1 for the option; statvfs(3).
"""

import json
import os
import sys

_NO_LINKS = 0x2000
"""ST_NOSYMFOLLOW (Linux 5.10)."""
_BINDS = frozenset({"bind", "rbind"})


def main(arguments: list[str]) -> None:
    """Edit the bundle that `runc create` is about to be given.

    Args:
        arguments: runc's own, without the program.

    Raises:
        OSError, ValueError, TypeError, AttributeError, LookupError: it cannot be read or written.
    """
    path = os.path.join(_bundle(arguments), "config.json")  # noqa: PTH118 - pathlib starts slowly
    with open(path, "rb") as stream:  # noqa: PTH123 - as above
        config = json.load(stream)
    held = [mount for mount in config.get("mounts") or () if _holds_links(mount)]
    if not held:
        return
    for mount in held:
        mount["options"].append("rsymfollow")
    temporary = f"{path}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8") as stream:  # noqa: PTH123 - as above
        json.dump(config, stream)
    os.replace(temporary, path)  # noqa: PTH105 - as above


def _bundle(arguments: list[str]) -> str:
    """The bundle's directory, in the spellings that runc's command line knows."""
    for index, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in {"--bundle", "-bundle", "-b", "--b"}:
            return value if equals else arguments[index + 1]
    return "."


def _holds_links(mount: dict[str, object]) -> bool:
    """Whether a mount is a bind of something whose mount refuses links."""
    options, source = mount.get("options"), mount.get("source")
    if not isinstance(options, list) or not isinstance(source, str):
        return False
    if mount.get("type") != "bind" and _BINDS.isdisjoint(options):
        return False
    try:
        return bool(os.statvfs(source).f_flag & _NO_LINKS)
    except OSError:
        return False  # it is gone, or became a link: runc says so


if __name__ == "__main__":
    try:
        main(sys.argv[2:])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as exc:
        sys.exit(f"cannot prepare the container's binds: {exc}")
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - of an absolute path
