"""What became of a write, from its error."""
from __future__ import annotations

from typing import Any, List, Optional

from pymongo import errors


class NotWrittenError(Exception):
    """A switch did not end in time, or no controller could say where the data is. Nothing was written: do it again."""


class UnknownOutcomeError(Exception):
    """The write, or a part of it, may have been done or not. Look before it is done again."""


class MovedError(Exception):
    """For a function to raise: what it looked for is not there, and it has written nothing.

    The function is run again if the data has moved; otherwise the call raises this error.
    """

    def __init__(self, what: str = "it is not there") -> None:
        super().__init__(what)


# How a server refuses what is sent to a fenced collection: by a validator, a view, another identity, a write block.
FENCE_CODES = (121, 166, 361, 371)

# How a read fails that was sent to where the data was: the collection or its cursor is gone, or a
# version that was completed has left a view that fails.
READ_CODES = (26, 43, 175, 241) + FENCE_CODES

# Codes after which the driver could not find out what became of a write. The driver repeats most of them once.
UNKNOWN_CODES = (
    6, 7, 89, 202, 9001,  # network
    91, 189, 10107, 11600, 11602, 13435, 13436,  # another primary
    50, 262, 11601, 46841,  # interrupted
    64, 100,  # not by a majority, yet
    175,  # of many documents some were written
)

# What became of a write.
REFUSED = "refused"  # by a fence, or by something of the application's own: nothing was written
TORN = "torn"  # the same, and a part may have been written
UNDONE = "undone"  # a transaction that was ended and can be run again at once
UNKNOWN = "unknown"
FAILED = "failed"  # by an error that has nothing to do with a switch


def causes(err: Optional[BaseException]) -> List[BaseException]:
    """An error and those that it wraps: an application may wrap what the driver raises."""
    out: List[BaseException] = []
    while err is not None and err not in out:
        out.append(err)
        err = err.__cause__ or (None if err.__suppress_context__ else err.__context__)
    return out


def outcome_of(err: BaseException, whole: bool) -> str:
    """Tells what became of a write. whole: a fence, if it was one, is known to have refused it as a whole."""
    for e in causes(err):
        became = _outcome_of_one(e, whole)
        if became != FAILED or isinstance(e, errors.PyMongoError):
            return became  # what the driver says of itself stands
    return FAILED


def _outcome_of_one(err: BaseException, whole: bool) -> str:
    if isinstance(err, MovedError):
        return REFUSED
    if not isinstance(err, errors.PyMongoError):
        return FAILED
    if err.has_error_label("UnknownTransactionCommitResult"):
        return UNKNOWN
    if err.has_error_label("TransientTransactionError"):
        return UNDONE
    if isinstance(err, errors.BulkWriteError) or type(err).__name__ == "ClientBulkWriteException":
        return _bulk_outcome(err, whole)
    if isinstance(err, errors.WriteConcernError):
        return UNKNOWN  # done there, and maybe not by a majority
    code = getattr(err, "code", None)
    if code in FENCE_CODES:
        return REFUSED if whole else TORN
    if err.has_error_label("NoWritesPerformed"):
        return FAILED
    if isinstance(err, (errors.ConnectionFailure, errors.ExecutionTimeout)) or code in UNKNOWN_CODES:
        return UNKNOWN
    if err.has_error_label("RetryableWriteError") or getattr(err, "timeout", False):
        return UNKNOWN
    return FAILED


def _bulk_outcome(err: Any, whole: bool) -> str:
    details = err.details or {}
    if details.get("writeConcernErrors"):
        return UNKNOWN
    codes = [e.get("code") for e in details.get("writeErrors") or []]
    inner = getattr(err, "error", None)  # of a ClientBulkWriteException: what ended the whole of it
    if any(c in UNKNOWN_CODES for c in codes) or err.has_error_label("RetryableWriteError"):
        return UNKNOWN
    if any(c in FENCE_CODES for c in codes):
        became = REFUSED
    else:
        became = outcome_of(inner, whole) if isinstance(inner, BaseException) else FAILED
    return UNKNOWN if became in (REFUSED, TORN) and not whole else became


def may_have_moved(err: BaseException) -> bool:
    """Tells whether a read can have failed because its data has moved."""
    return any(isinstance(e, MovedError) or getattr(e, "code", None) in READ_CODES for e in causes(err))
