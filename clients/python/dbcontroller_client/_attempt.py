"""What became of the operations of a write."""
from __future__ import annotations

import functools
import threading
from contextvars import ContextVar
from typing import Any, Callable, Dict, TypeVar

from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

try:
    from pymongo.bulk import BulkOperationBuilder  # of pymongo 3
except ImportError:
    BulkOperationBuilder = None

from ._errors import FAILED, REFUSED, TORN, UNDONE, UNKNOWN, causes, outcome_of

T = TypeVar("T")

_COUNTS = ("nInserted", "nMatched", "nModified", "nRemoved", "nUpserted")
_SINGLE = ("InsertOne", "UpdateOne", "ReplaceOne", "DeleteOne")
# Notes on an error that the operation wrote nothing, if it was a fence that refused it. Of an update of
# many documents that a fence met in the middle a server says the same as of one document.
_WHOLE = "_dbcontroller_whole"
_ATTEMPT = "_dbcontroller_attempt"  # of a collection that a Place gave


def wrote_nothing(err: BaseException) -> None:
    for e in causes(err):
        setattr(e, _WHOLE, True)


class Attempt:
    """One run of a write's function, which may have several operations.

    It only gets worse: once one of them has written, or may have, no later refusal makes the run
    one that wrote nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Operations of which it is not known that they wrote nothing. A transaction counts as one.
        self._wrote = 0
        self._transactions: Dict[int, Any] = {}  # sessions with one that counts

    def begins(self) -> None:
        with self._lock:
            self._wrote += 1

    def ended_without_writing(self) -> None:
        with self._lock:
            self._wrote -= 1

    def joins(self, session: Any) -> None:
        """Counts the transaction of a session until it is known that it was not committed."""
        with self._lock:
            if id(session) in self._transactions:
                return
            self._transactions[id(session)] = session
            self._wrote += 1
        abort, commit = session.abort_transaction, session.commit_transaction

        def ends(wrote: bool) -> None:
            session.abort_transaction, session.commit_transaction = abort, commit
            with self._lock:
                del self._transactions[id(session)]
                if not wrote:
                    self._wrote -= 1

        def abort_transaction() -> None:
            abort()  # raises where a commit was sent
            ends(False)

        def commit_transaction() -> None:
            try:
                commit()
            except Exception as err:
                if outcome_of(err, True) == UNDONE:
                    ends(False)  # else it is tried again, or its outcome is unknown
                raise
            ends(True)

        session.abort_transaction, session.commit_transaction = abort_transaction, commit_transaction

    def became(self, err: BaseException) -> str:
        """Tells what became of the run from its error."""
        with self._lock:
            wrote = self._wrote > 0
        became = outcome_of(err, not wrote and any(getattr(e, _WHOLE, False) for e in causes(err)))
        if wrote and became == REFUSED:
            return TORN  # a MovedError, after something was written
        if wrote and became == UNDONE:
            return UNKNOWN  # a transaction, beside which something was written
        return became


class _Inside:
    """What a method of the driver calls counts once."""


# The attempt in whose function the code runs.
_current: ContextVar[Any] = ContextVar("dbcontroller_attempt", default=None)


def during(attempt: Attempt, fn: Callable[[], T]) -> T:
    """Runs a function, all of whose operations with the driver are told to an attempt."""
    before = _current.set(attempt)
    try:
        return fn()
    finally:
        _current.reset(before)


def of_attempt(collection: Any, attempt: Attempt) -> Any:
    """Has a collection tell an attempt, in whatever thread it is used."""
    collection.__dict__[_ATTEMPT] = attempt
    return collection


_seeing = threading.Lock()
_seen = False


def see() -> None:
    """Has attempts hear of all operations of the driver: a library above it has collections of its own.

    Outside of an attempt nothing changes.
    """
    global _seen
    with _seeing:
        if _seen:
            return
        _seen = True
    for name in ("insert_one", "update_one", "replace_one", "delete_one",
                 "find_one_and_update", "find_one_and_replace", "find_one_and_delete"):
        _watch(Collection, name, lambda err, args, kwargs: True)
    _watch(Collection, "insert_many", _many_none)
    _watch(Collection, "bulk_write", _bulk_none)
    # The last ones are of pymongo 3.
    for name in ("update_many", "delete_many", "insert", "save", "update", "remove", "find_and_modify", "map_reduce"):
        _watch(Collection, name, lambda err, args, kwargs: False)
    _watch(Collection, "aggregate", lambda err, args, kwargs: False, _writes)
    _watch(MongoClient, "bulk_write", _bulk_none)  # of pymongo 4.9 and later
    if BulkOperationBuilder is not None:
        _watch(BulkOperationBuilder, "execute", lambda err, args, kwargs: False)


def _watch(of: Any, name: str, none: Callable[..., bool], writes: Callable[..., bool] = lambda args, kwargs: True) -> None:
    """Has an attempt hear of a method. none tells whether what failed wrote nothing, if it was refused."""
    run = of.__dict__.get(name)
    if run is None:
        return

    @functools.wraps(run)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        attempt = _current.get()
        if attempt is not _Inside:
            attempt = getattr(self, "__dict__", {}).get(_ATTEMPT) or attempt
        if attempt is None or attempt is _Inside or not writes(args, kwargs):
            return run(self, *args, **kwargs)
        return _heard(attempt, lambda: run(self, *args, **kwargs), args, kwargs, none)

    setattr(of, name, watched)


def _heard(attempt: Attempt, run: Callable[[], Any], args: Any, kwargs: Any, none: Callable[..., bool]) -> Any:
    session = kwargs.get("session") or next((a for a in args if isinstance(a, ClientSession)), None)
    transaction = session is not None and session.in_transaction
    if transaction:
        attempt.joins(session)
    else:
        attempt.begins()
    before = _current.set(_Inside)
    try:
        result = run()
        if not transaction and _found_none(result, args, kwargs):
            attempt.ended_without_writing()
        return result
    except Exception as err:
        if transaction:
            wrote_nothing(err)  # unless the transaction is committed all the same, and that counts
        elif none(err, args, kwargs):
            wrote_nothing(err)
            if outcome_of(err, True) in (REFUSED, FAILED):
                attempt.ended_without_writing()
        raise
    finally:
        _current.reset(before)


def _counted(err: Any) -> bool:
    details = getattr(err, "details", None) or {}
    return any(details.get(n, 0) > 0 for n in _COUNTS)


def _bulk_none(err: Any, args: Any, kwargs: Any) -> bool:
    models = args[0] if args else kwargs.get("requests", kwargs.get("models", ()))
    return _complete(err, models) and not _counted(err) and isinstance(models, (list, tuple)) and all(type(m).__name__ in _SINGLE for m in models)


def _many_none(err: Any, args: Any, kwargs: Any) -> bool:
    return _complete(err, args[0] if args else kwargs.get("documents", ())) and not _counted(err)


def _complete(err: Any, operations: Any) -> bool:
    """Tells whether an error has the counts of all commands of a bulk write.

    The driver raises any other error without the counts of the commands before. One operation is one command.
    """
    return isinstance(err, BulkWriteError) or (isinstance(operations, (list, tuple)) and len(operations) == 1)


def _writes(args: Any, kwargs: Any) -> bool:
    pipeline = args[0] if args else kwargs.get("pipeline")
    if not isinstance(pipeline, (list, tuple)):
        return True  # what cannot be looked at may write
    return any("$out" in stage or "$merge" in stage for stage in pipeline)


def _found_none(result: Any, args: Any, kwargs: Any) -> bool:
    """Tells whether there was nothing to write. An upsert also answers None, after it has inserted."""
    if result is None:
        return not kwargs.get("upsert") and True not in args[2:]
    if not getattr(result, "acknowledged", False):
        return False
    numbers = [getattr(result, n, None) for n in ("inserted_count", "matched_count", "modified_count", "deleted_count", "upserted_count")]
    known = [n for n in numbers if n is not None]
    return bool(known) and not any(known) and getattr(result, "upserted_id", None) is None
