"""Files that the application trusts: its token, its authorities, its key, and its memory."""
from __future__ import annotations

import os
import stat

_MODES = os.name != "nt"  # Windows has no such modes


def check(file: str) -> None:
    """Refuses a file that other users than its owner can write."""
    info = os.stat(file)  # of the target of a link: secrets in Kubernetes are links
    if not stat.S_ISREG(info.st_mode):
        raise PermissionError(0, "it is no regular file", file)
    if _MODES and info.st_mode & 0o022:
        raise PermissionError(0, "it can be written by others than its owner: chmod go-w it", file)


def trusted(file: str) -> str:
    """The text of a file that passes the check."""
    check(file)
    with open(file, encoding="utf-8") as f:
        return f.read()


def own(file: str) -> str:
    """The text of a file that this application wrote itself. A file of another user, except root, is refused as well."""
    if _MODES and os.stat(file).st_uid not in (0, os.geteuid()):
        raise PermissionError(0, "it belongs to another user: remove it", file)
    return trusted(file)


def exposed(file: str) -> bool:
    """Whether every user of the machine can read a file."""
    return _MODES and bool(os.stat(file).st_mode & 0o004)
