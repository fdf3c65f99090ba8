"""A file with the location that was open last, and with the identities that its collections had.

The location alone would not do: the version may have been retired since, and its names belong to
others. A collection that still bears its name and its identity is the one that the application
may write, or one whose fence refuses it.
"""
from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Callable, Dict, Optional

from bson.codec_options import CodecOptions

from . import _files

_FORMAT = 1


def identities(client: Any, location: Dict[str, Any]) -> Dict[str, str]:
    """The identities of a location's collections; one that is a view, or is not there, has none."""
    ids = {}
    for k in location["kinds"]:
        found = identity_of(client, k)
        if found:
            ids[k["kind"]] = found
    return ids


def identity_of(client: Any, kind: Dict[str, Any]) -> str:
    """The UUID of a collection; empty for a view, and for one that is missing. The driver asks the primary."""
    # With options of its own: the application's may decode a UUID in other ways.
    db = client.get_database(kind["database"], codec_options=CodecOptions())
    for found in db.list_collections(filter={"name": kind["collection"]}):
        uuid = (found.get("info") or {}).get("uuid")
        if found.get("type") == "collection" and uuid is not None:
            return uuid.hex if isinstance(getattr(uuid, "hex", None), str) else bytes(uuid).hex()
    return ""


def write(file: str, deployment: str, location: Dict[str, Any], ids: Dict[str, str]) -> None:
    """Replaces the file at once: who reads it sees the old one or the new one."""
    fd, temporary = tempfile.mkstemp(prefix=os.path.basename(file) + ".", dir=os.path.dirname(file) or ".")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as out:
            json.dump({"format": _FORMAT, "deployment": deployment, "location": location, "identities": ids}, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def deployment_of(file: Optional[str]) -> str:
    """Whose memory a file is; empty where there is none, or none that can be read."""
    try:
        return str(_read(file)["deployment"]) if file else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def recall(file: Optional[str], deployment: str, client_at: Callable[[Dict[str, Any]], Any]) -> Dict[str, Any]:
    """The location of the file, if the collections are still where it says."""
    if not file:
        raise ValueError("nothing is remembered, for no file is configured")
    try:
        was = _read(file)
    except (OSError, ValueError) as err:
        raise ValueError(f"remember where the data is: {getattr(err, 'strerror', None) or 'the file is not readable'} ({file})") from None
    location = was.get("location") if isinstance(was, dict) else None
    if not isinstance(location, dict) or was.get("format") != _FORMAT or location.get("state") != "OPEN" or not isinstance(location.get("kinds"), list):
        raise ValueError(f"{file} is no memory of an application: remove it")
    if deployment and was.get("deployment") != deployment:
        raise ValueError(f"{file} is of another deployment: give another file")
    now = identities(client_at(location), location)
    if not all(now.get(k["kind"]) and now[k["kind"]] == (was.get("identities") or {}).get(k["kind"]) for k in location["kinds"]):
        raise ValueError(f"{file}: the data is not where it was: a controller has to be reached")
    return {**location, "epoch": "0", "revision": "0"}  # whatever a controller says is newer


def _read(file: str) -> Any:
    return json.loads(_files.own(file))
