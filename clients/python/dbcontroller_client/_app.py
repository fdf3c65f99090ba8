"""One process of an application, which follows its collections through switches."""
from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, TypeVar, Union

from pymongo import MongoClient

from . import _memory as memory
from ._attempt import Attempt, during, of_attempt, see, wrote_nothing
from ._controllers import CALL_TIMEOUT, ControllerError, Controllers, OtherDeploymentError
from ._errors import FAILED, TORN, UNDONE, UNKNOWN, NotWrittenError, UnknownOutcomeError, may_have_moved

T = TypeVar("T")
Location = Dict[str, Any]

log = logging.getLogger("dbcontroller_client")

# How long one call waits for news at most. A controller that stands still is noticed after that.
_LONGEST_POLL = 5.0
# Codes of answers of a controller that time does not change.
_PERMANENT = ("invalid_argument", "unauthenticated", "permission_denied", "unimplemented")


@dataclass(frozen=True)
class Where:
    """Which cluster holds the data."""

    version: str
    database: str
    hosts: str  # of the cluster, comma-separated, as the controllers reach it
    cluster: str  # what the cluster calls itself; empty where that is not known


class _OtherClusterError(Exception):
    """A client does not reach the collections of a location."""


class _StrangerError(Exception):
    """A write would go to a client that does not reach the collections of a location."""

    def __init__(self, why: _OtherClusterError, location: Location) -> None:
        super().__init__(str(why))
        self.location = location


def _break_off(conn: Any) -> None:
    """Ends the call over a connection, if one runs."""
    sock = getattr(conn, "sock", None)
    if sock is not None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended


class _Waiter:
    """A thread that waits for news at controllers, over a connection of its own."""

    def __init__(self, run: "Callable[[_Waiter], None]") -> None:
        self.stopping = threading.Event()
        self.conn: Any = None
        self._thread = threading.Thread(target=run, args=(self,), name="dbcontroller", daemon=True)
        self._thread.start()

    def disconnect(self) -> None:
        if self.conn is not None:
            self.conn.close()
            self.conn = None

    def end(self) -> None:
        """Ends the call that waits for news. It does not wait for the thread."""
        self.stopping.set()
        _break_off(self.conn)

    def join(self) -> None:
        while self._thread.is_alive():
            self.end()  # again: it may only be connecting
            self._thread.join(0.05)


class Place:
    """Where the data of a version is."""

    def __init__(self, version: str, client: "MongoClient[Any]", kinds: List[Dict[str, Any]], attempt: Optional[Attempt]) -> None:
        self.version = version  # whose form documents have here
        self.client = client
        self._kinds = kinds
        self._attempt = attempt

    def collection(self, kind: str) -> Any:
        """The collection of a kind, as the driver's. A kind that the version does not have is an error."""
        for k in self._kinds:
            if k["kind"] == kind:
                found = self.client[k["database"]][k["collection"]]
                return of_attempt(found, self._attempt) if self._attempt else found
        raise KeyError(f"version {self.version} has no kind {kind!r}, only {', '.join(k['kind'] for k in self._kinds)}")


def connect(
    *,
    controllers: Sequence[str],
    application: str,
    mongo: "Union[MongoClient[Any], Callable[[Where], MongoClient[Any]]]",
    deployment: str = "",
    memory: Optional[str] = None,
    start_timeout: float = 10.0,
    patience: float = 30.0,
    ttl: float = 15.0,
    token: Optional[str] = None,
    token_file: Optional[str] = None,
    ca_file: Optional[str] = None,
    cert_file: Optional[str] = None,
    key_file: Optional[str] = None,
) -> "App":
    """Registers the application and finds out where its data is. Times are in seconds.

    controllers: addresses of controllers of one deployment, HOST:PORT or https://HOST:PORT. Give all
    of them: any can be down.
    mongo: the client of all versions, where they are in one cluster; otherwise a function that returns
    the one of a place, which is called once for each cluster. The client checks by the UUID of a
    collection that it reaches the data, and needs listCollections for that.
    deployment: its name; without it the one that memory is of, or else that of the first controller to answer.
    memory: a file in which is kept where the data is, so that the application can start while no
    controller can be reached.
    """
    if isinstance(controllers, str) or not controllers:
        raise ValueError("no controllers are given: give a list of the addresses of all of them, HOST:PORT")
    if not application:
        raise ValueError("the application has no name: give one, such as billing")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", application):
        raise ValueError(f"application {application!r}: give a name of up to 100 letters, digits, and any of . _ -")
    if type(mongo).__name__.startswith(("Async", "Motor")):
        raise TypeError(f"mongo is of {type(mongo).__name__}: give a pymongo.MongoClient; asynchronous clients are not supported")
    if not hasattr(type(mongo), "start_session") and not callable(mongo):
        raise TypeError("give mongo, a MongoClient or a function that returns one for a place")
    if not 1 <= ttl <= 300:
        raise ValueError(f"ttl is {ttl}: give 1 to 300 (seconds)")
    if (cert_file is None) != (key_file is None):
        raise ValueError("a client certificate and its key belong together: give both")
    them = Controllers(controllers, deployment, token, token_file, ca_file, cert_file, key_file)
    app = App(them, application, mongo, deployment, memory, patience, ttl)
    app._start(start_timeout)
    return app


class App:
    """One process of an application; connect makes it. All methods can be called from any thread."""

    def __init__(
        self, controllers: Controllers, application: str, mongo: Any, deployment: str, memory: Optional[str], patience: float, ttl: float,
    ) -> None:
        self._controllers = controllers
        self._application = application
        self._mongo = mongo
        self._deployment = deployment  # as configured
        self._memory = memory
        self._patience = patience
        self._ttl = ttl
        self._id = f"client-{application}-{secrets.token_hex(8)}"
        self._changed = threading.Condition()  # guards what follows, and tells of it
        self._newest: Optional[Location] = None
        self._open: Optional[Location] = None  # the newest that was: where reads go
        self._writes = 0  # in flight
        self._closed = False
        self._process = os.getpid()
        self._here = threading.local()  # writes: in flight in this thread
        # The cluster of mongo as a client: the recognized one. If the first location comes from an
        # older controller, without identities, it is the cluster of that location.
        self._cluster = ""
        self._recognized: Set[str] = set()  # clusters that a client is known to reach
        self._opening = threading.Lock()  # held while mongo is called
        self._clients: Dict[str, Any] = {}  # of mongo as a function, by cluster
        # Of start and then of the follower.
        self._met = False  # a controller
        self._follower: Optional[_Waiter] = None
        self._watcher: Optional[_Waiter] = None  # beside the follower, which starts and ends it
        self._ended = threading.Event()  # nothing is remembered any more; set under changed
        self._tried = threading.Event()  # the first time that something was to be remembered
        self._remembering: Optional[threading.Thread] = None

    def __enter__(self) -> "App":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def version(self) -> Optional[str]:
        """The version that reads go to now; None: the application was opened during a switch."""
        with self._changed:
            return self._open["version"] if self._open else None

    @property
    def revision(self) -> int:
        """The revision of the newest location that was heard of."""
        with self._changed:
            return int(self._newest["revision"]) if self._newest else 0

    def write(self, fn: Callable[[Place], T], *, patience: Optional[float] = None) -> T:
        """Runs a write where the data is, and again where the data has moved to if the database refused it as a whole.

        That is known of methods that write single documents, and of transactions. NotWrittenError: a
        switch did not end in time, and nothing was written. UnknownOutcomeError: the write, or a part of
        it, may have been done or not.
        """
        until = time.monotonic() + (self._patience if patience is None else patience)
        wait = 0.01
        while True:
            attempt = Attempt()
            try:
                location, place = self._enter(until, attempt)
            except _StrangerError as err:
                if not self._passed(_moment(err.location), until) or time.monotonic() + wait > until:
                    raise NotWrittenError(f"nothing was written: {err}") from err
                time.sleep(wait)
                wait = min(2 * wait, 1.0)
                continue
            began = time.monotonic()
            self._here.writes = getattr(self._here, "writes", 0) + 1
            try:
                return during(attempt, lambda: fn(place))
            except Exception as err:
                failure = err
            finally:
                self._here.writes -= 1
                self._leave()
            became = attempt.became(failure)
            if became == UNKNOWN:
                raise UnknownOutcomeError(f"it is not known whether this was written: {failure}") from failure
            if became == FAILED:
                raise failure
            if became != UNDONE:
                # Patience is for waits. A process that slept within fn would give up without asking where the data are.
                until += time.monotonic() - began
                try:
                    moved = self._moved(_moment(location), until)
                except ControllerError as err:
                    if became == TORN:
                        raise UnknownOutcomeError(f"it is not known whether this was written: {failure}") from failure
                    raise NotWrittenError(f"nothing was written: {err}; the database said: {failure}") from failure
                if not moved:
                    raise failure  # the application's own validator, view or block
                if became == TORN:
                    raise UnknownOutcomeError(f"it is not known whether this was written: {failure}") from failure
            if time.monotonic() + wait > until:
                raise NotWrittenError(f"nothing was written: {failure}") from failure
            time.sleep(wait)
            wait = min(2 * wait, 1.0)

    def transaction(self, fn: Callable[[Place, Any], T], *, patience: Optional[float] = None) -> T:
        """Runs a transaction as write does a write. Operations take the session that fn gets."""

        def run(at: Place) -> T:
            with at.client.start_session() as session:
                try:
                    return session.with_transaction(lambda s: fn(at, s))
                except Exception as err:
                    wrote_nothing(err)  # if something was refused, the transaction was ended with it
                    raise

        return self.write(run, patience=patience)

    def read(self, fn: Callable[[Place], T], *, patience: Optional[float] = None) -> T:
        """Runs a read where the data is, also while writes are held, and again where the data has moved to if that is why it failed.

        A cursor is read within fn.
        """
        until = time.monotonic() + (self._patience if patience is None else patience)
        wait = 0.01
        while True:
            location, seen = self._readable(until)
            try:
                place = self._place(location, None, until)
            except _OtherClusterError:
                with self._changed:
                    switching = self._newest is not None and self._newest["state"] != "OPEN"
                if switching:
                    # A fence may already hide the collections. Reads go on.
                    place = self._place(location, None, until, recognize=False)
                elif self._passed(seen, until) and time.monotonic() + wait <= until:
                    time.sleep(wait)
                    wait = min(2 * wait, 1.0)
                    continue
                else:
                    raise
            began = time.monotonic()
            try:
                return fn(place)
            except Exception as err:
                until += time.monotonic() - began  # reading a long cursor is no wait
                if not may_have_moved(err) or time.monotonic() + wait > until:
                    raise
                # While a switch is under way the rename that ended a read may not be confirmed yet.
                try:
                    moved = self._moved(seen, until)
                except ControllerError:
                    raise err from None
                with self._changed:
                    is_open = self._newest is not None and self._newest["state"] == "OPEN"
                if not moved and is_open:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, 1.0)

    def close(self) -> None:
        """Lets writes in flight end, and tells the controllers that the application is gone.

        In a process that was forked after connect it does nothing: the registration is the parent's.
        """
        if os.getpid() != self._process:
            return
        if getattr(self._here, "writes", 0) > 0:  # also in a handler of a signal, which interrupts the write
            raise RuntimeError("close is called within a write, and would wait for it forever: call it after the write, or in another thread")
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            while self._writes > 0:
                self._changed.wait()
        if self._follower is not None:
            self._follower.join()
        if self._watcher is not None:
            self._watcher.join()
        with self._changed:
            self._ended.set()
            self._changed.notify_all()
        try:
            self._deregister()
        finally:
            if self._remembering is not None:
                self._remembering.join(CALL_TIMEOUT)  # a database or the function mongo may stand still

    def _deregister(self) -> None:
        if not self._met:
            return
        last: Optional[ControllerError] = None
        for c in self._controllers.all:
            try:
                c.call("DeregisterClient", {"clientId": self._id})
                return
            except ControllerError as err:
                last = err
        if last is not None:
            raise last

    def _start(self, timeout: float) -> None:
        """Registers, or goes by what is remembered."""
        see()
        until = time.monotonic() + timeout
        if not self._controllers.deployment:
            self._controllers.deployment = memory.deployment_of(self._memory)
        wait = 0.01
        first, registered = 0, 0.0
        while not registered:
            said, others = [], 0
            refused = ""  # code of a controller that refuses the application
            undecided = False  # a controller answered otherwise, such as "stopping"
            for i, c in enumerate(self._controllers.all):
                try:
                    self._register(c)
                    first, registered = i, time.monotonic()
                    break
                except OtherDeploymentError as err:
                    others += 1
                    said.append(str(err))
                except ControllerError as err:
                    if err.code in _PERMANENT:
                        refused = err.code
                    elif err.answered:
                        undecided = True
                    said.append(str(err))
            if registered:
                break
            if others == len(self._controllers.all):
                raise ControllerError("not_found", "; ".join(said))  # time does not change whose they are
            if refused and not undecided:  # one alone may not have read a new token yet
                raise ControllerError(refused, "; ".join(said))
            if time.monotonic() + wait > until:
                try:
                    at = memory.recall(self._memory, self._deployment, self._client_at)
                except Exception as err:
                    raise ControllerError("unavailable", f"no controller can be reached ({'; '.join(said)}), and {err}") from err
                log.warning("no controller can be reached: going on where the data of %s was", at["version"])
                self._accept(at)
                break
            time.sleep(wait)
            wait = min(2 * wait, 1.0)
        self._follower = _Waiter(lambda w: self._follow(w, first, registered))
        if self._memory:
            self._remembering = threading.Thread(target=self._keep_memory, args=(self._memory,), name="dbcontroller-memory", daemon=True)
            self._remembering.start()
            # A process that ends soon must have a memory all the same.
            with self._changed:
                due = self._unwritten((0, 0)) is not None
            if due:
                self._tried.wait(CALL_TIMEOUT)

    def _follow(self, w: _Waiter, at: int, registered: float) -> None:
        """Keeps the registration and takes news of the location, at one controller after the other."""
        acked, lost, wait = "", "", 0.01
        every = self._controllers.all
        self._watcher = self._beside(at)
        while not w.stopping.is_set():
            c = every[at % len(every)]
            try:
                w.conn = w.conn or c.connection()
                if not registered or time.monotonic() - registered > self._ttl / 3:
                    self._register(c, w.conn)
                    registered = time.monotonic()
                acked = self._await(c, w.conn, self._id, acked)
                lost, wait = "", 0.01
            except Exception as err:  # also what a wrong answer breaks: the thread goes on
                w.disconnect()
                if w.stopping.is_set():
                    return
                # The next one holds the registration, and knows nothing of what was acknowledged if
                # that has ended meanwhile.
                lost, registered, acked = self._warn_once(err, lost), 0.0, ""
                at += 1
                # The second call must wait at another controller than this one does now.
                if self._watcher is not None:
                    self._watcher.end()
                self._watcher = self._beside(at)
                if at % len(every) == 0 or getattr(err, "code", "") != "unavailable":
                    w.stopping.wait(wait)
                    wait = min(2 * wait, 1.0)
        w.disconnect()

    def _beside(self, at: int) -> Optional[_Waiter]:
        """Waits for news at a second controller, while the follower waits at the one with index at.

        That one may stand still: the follower would notice this only after _LONGEST_POLL and
        CALL_TIMEOUT, and a switch does not wait that long for an acknowledgement.
        """
        return _Waiter(lambda w: self._watch(w, at)) if len(self._controllers.all) > 1 else None

    def _watch(self, w: _Waiter, at: int) -> None:
        """Waits for news, and acknowledges holds, at any controller except the one with index at.

        Only the follower registers, so its calls have no client id: a controller must not end the
        registration when they break off.
        """
        acked, lost, wait, i = "", "", 0.01, 0
        every = self._controllers.all
        while not w.stopping.is_set():
            c = every[(at + 1 + i % (len(every) - 1)) % len(every)]
            try:
                w.conn = w.conn or c.connection()
                acked = self._await(c, w.conn, "", acked)
                lost, wait = "", 0.01
            except Exception as err:
                w.disconnect()
                if w.stopping.is_set():
                    return
                lost, acked = self._warn_once(err, lost), ""
                i += 1
                w.stopping.wait(wait)
                wait = min(2 * wait, 1.0)
        w.disconnect()

    @staticmethod
    def _warn_once(err: Exception, lost: str) -> str:
        """Logs the error of a controller, unless it is the last logged one, and returns its text."""
        if str(err) != lost:
            log.warning("a controller does not answer; asking another one: %s", err)
        return str(err)

    def _await(self, c: Any, conn: Any, client_id: str, acked: str) -> str:
        """Waits at a controller for news, and acknowledges a hold there. It returns what is acknowledged.

        The id shows the controller that the application is alive; empty: it need not know.
        """
        with self._changed:
            location, busy = self._newest or {}, self._writes > 0
        poll = min(self._ttl / 3, _LONGEST_POLL)
        asked = f"{location.get('upgradeId', '')}/{location.get('attempt', '0')}"  # attempts begin anew with each upgrade
        acknowledging = None
        if location["state"] == "HOLD" and location.get("upgradeId") and acked != asked:
            if busy:
                acknowledging = _Acknowledging(self, c, conn, location)
            else:
                self._acknowledge(c, location, conn)
                acked = asked
        try:
            self._accept(c.call(
                "GetLocation", {"clientId": client_id, "waitRevision": location["revision"], "timeoutMs": max(1, int(poll * 1000))},
                timeout=poll + CALL_TIMEOUT, over=conn,
            ))
        finally:
            if acknowledging is not None and acknowledging.end():
                acked = asked
        return acked

    def _acknowledge(self, c: Any, location: Location, conn: Any = None) -> None:
        try:
            c.call("AckHold", {"clientId": self._id, "upgradeId": location["upgradeId"], "attempt": location.get("attempt", "0")}, over=conn)
        except ControllerError as err:
            if err.code != "failed_precondition":
                raise  # else nobody waits for it any more

    def _register(self, c: Any, conn: Any = None) -> None:
        answer = c.call("RegisterClient", {"application": self._application, "clientId": self._id, "ttlMs": int(self._ttl * 1000)}, over=conn)
        self._met = True
        self._accept(answer["location"])

    def _accept(self, location: Location) -> None:
        """Takes a location, unless it is older than the one at hand.

        One of another deployment is refused: its collections are not those of this application,
        whatever they are called.
        """
        of = location.get("deployment", "")  # empty: a controller that does not say so yet
        with self._changed:
            ours = self._controllers.deployment
            if of and ours and of != ours:
                remove = f", or remove {self._memory} if this application has changed its deployment" if self._memory and not self._deployment else ""
                raise OtherDeploymentError(f"this is a controller of {of}, not of {ours}: correct controllers{remove}")
            if self._newest is not None and _moment(location) <= _moment(self._newest):
                return
            self._controllers.deployment = ours or of
            # Its identities tell more than the name of its cluster, which mongo need not be a client of.
            if self._newest is None and not _identified(location):
                self._cluster = location.get("cluster", "")
            self._newest = location
            if location["state"] == "OPEN":
                self._open = location
            self._changed.notify_all()

    def _unwritten(self, written: Tuple[int, int]) -> Optional[Location]:
        """The newest location, if it is open and newer than what is in the memory. Under changed."""
        newest = self._newest
        return newest if newest is not None and newest["state"] == "OPEN" and _moment(newest) > written else None

    def _keep_memory(self, file: str) -> None:
        """Stores each newest open location, until close.

        It runs beside the follower: a slow database or function mongo must not delay the
        acknowledgement of a hold. It stores one location at a time, and skips those that newer ones
        have replaced.
        """
        written = (0, 0)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended.is_set() or self._unwritten(written) is not None)
                location = self._unwritten(written)
            if self._ended.is_set() or location is None:
                return
            try:
                client = self._client_at(location, time.monotonic() + CALL_TIMEOUT)
                self._recognize(client, location)
                memory.write(file, self._controllers.deployment, location, memory.identities(client, location))
                written = _moment(location)
            except Exception as err:  # the file is for a start that may never come
                log.warning("cannot remember where the data is in %s: %s", file, err)
            self._tried.set()
            if written != _moment(location):
                self._ended.wait(_LONGEST_POLL)

    def _check_process(self) -> None:
        """Refuses a forked process. It has no thread that follows, and no registration of its own.

        Call this before taking a lock: another thread of the parent may have held it at the fork.
        """
        if os.getpid() != self._process:
            raise RuntimeError("this process was forked after connect: call connect in each process")

    def _enter(self, until: float, attempt: Attempt) -> Tuple[Location, Place]:
        """Waits until writing is allowed, and returns where. Each one that succeeds needs a _leave."""
        self._check_process()
        while True:
            with self._changed:
                while self._closed or self._newest is None or self._newest["state"] != "OPEN":
                    if self._closed:
                        raise NotWrittenError("nothing was written: the application was closed")
                    left = until - time.monotonic()
                    if left <= 0:
                        raise NotWrittenError("nothing was written: writes are held for a switch, which has not ended")
                    self._changed.wait(left)
                location = self._newest
            # Not counted yet: a function mongo may take long, and a hold must not wait for a write that
            # has not begun.
            try:
                place = self._place(location, attempt, until)
            except _OtherClusterError as err:
                raise _StrangerError(err, location) from err
            except Exception as err:
                raise NotWrittenError(f"nothing was written: {err}") from err
            with self._changed:
                if not self._closed and self._newest is location:
                    self._writes += 1
                    return location, place

    def _leave(self) -> None:
        with self._changed:
            self._writes -= 1
            if self._writes == 0:
                self._changed.notify_all()

    def _readable(self, until: float) -> Tuple[Location, Tuple[int, int]]:
        """Waits for the first location that is open, and returns the newest such one, and how new what is known now is.

        A location that holds writes may name a version whose collections do not bear their names yet,
        and there reads would find nothing.
        """
        self._check_process()
        with self._changed:
            while True:
                if self._closed:
                    raise RuntimeError("the application was closed")
                if self._open is not None and self._newest is not None:
                    return self._open, _moment(self._newest)
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the application was opened during a switch, which has not ended")
                self._changed.wait(left)

    def _moved(self, seen: Tuple[int, int], until: float) -> bool:
        """Tells whether the location is newer than one that was seen."""
        wait = 0.01
        while True:
            with self._changed:
                if self._newest is not None and _moment(self._newest) > seen:
                    return True
            try:
                return _moment(self._controllers.ask("GetLocation", {}, self._accept)) > seen
            except ControllerError as err:
                if time.monotonic() + wait > until:
                    raise ControllerError(err.code, f"ask where the data is: {err}") from err
                time.sleep(wait)
                wait = min(2 * wait, 1.0)

    def _passed(self, seen: Tuple[int, int], until: float) -> bool:
        """Tells whether the data has moved since a location whose collections a client does not reach.

        A switch or a new collection then explains that.
        """
        try:
            return self._moved(seen, until)
        except ControllerError:
            return False

    def _place(self, location: Location, attempt: Optional[Attempt], until: float, recognize: bool = True) -> Place:
        client = self._client_at(location, until)
        if recognize:
            self._recognize(client, location)
        return Place(location["version"], client, location["kinds"], attempt)

    def _recognize(self, client: Any, location: Location) -> None:
        """Checks, once for each cluster, that a client reaches the data of a location.

        A name proves nothing: a write to a missing collection creates it. One matching identity is
        enough, because the application may have replaced other collections a moment ago.
        """
        key, version, hosts = _cluster_key(location), location["version"], location.get("hosts", "")
        with self._changed:
            if not _identified(location) or key in self._recognized:
                return
        for k in location["kinds"]:
            if not k.get("id"):
                continue
            try:
                found = memory.identity_of(client, k)
            except Exception as err:
                raise RuntimeError(f"check that this is the cluster of {version}, at {hosts}: look at {k['collection']}: {err}") from err
            if found == k["id"]:
                with self._changed:
                    self._recognized.add(key)
                    self._cluster = location.get("cluster", "")  # for locations of older controllers
                return
            stranger = k
        if self._one_client():
            what, advice = "mongo", "connect it to that cluster, or give a function as mongo if versions are in several clusters"
        else:
            what, advice = "the client from the function mongo", "return a client that is connected to that cluster"
        raise _OtherClusterError(
            f"the data of {version} is in the cluster at {hosts}, and {what} finds no collection "
            f"{stranger['database']}.{stranger['collection']} with UUID {stranger['id']}: {advice}")

    def _one_client(self) -> bool:
        return hasattr(type(self._mongo), "start_session")

    def _client_at(self, location: Location, until: Optional[float] = None) -> Any:
        cluster, hosts = location.get("cluster", ""), location.get("hosts", "")
        if self._one_client():
            # _recognize checks locations with identities.
            if not _identified(location) and cluster and self._cluster and cluster != self._cluster:
                raise RuntimeError(f"the data of {location['version']} is in another cluster ({hosts}): give a function as mongo")
            return self._mongo
        key = _cluster_key(location)
        if key in self._clients:
            return self._clients[key]
        # Not under changed: mongo may take long, and holds must be acknowledged meanwhile.
        if not self._opening.acquire(timeout=-1 if until is None else max(0.0, until - time.monotonic())):
            raise TimeoutError(f"reach the data of {location['version']}: another call of the function mongo has not returned")
        try:
            if key not in self._clients:
                self._clients[key] = self._mongo(Where(location["version"], location.get("database", ""), hosts, cluster))
            return self._clients[key]
        finally:
            self._opening.release()


def _identified(location: Location) -> bool:
    """Whether a location has the identity of a collection. Those of older controllers have none."""
    return any(k.get("id") for k in location.get("kinds", ()))


def _cluster_key(location: Location) -> str:
    return f"{location.get('cluster', '')} {location.get('hosts', '')}"


def _moment(location: Location) -> Tuple[int, int]:
    """What orders locations: revisions alone do not, for they begin anew in the record that is recovered after etcd was lost, with a higher epoch."""
    return int(location.get("epoch", "0")), int(location["revision"])


class _Acknowledging:
    """Acknowledges a hold as soon as no write is in flight, in a thread beside the call for news.

    If the process dies meanwhile, that call breaks, and the controller sees that it waits in vain.
    """

    def __init__(self, app: App, c: Any, conn: Any, location: Location) -> None:
        self._app, self._c, self._conn, self._location = app, c, conn, location
        self._over, self._done = False, False
        self._error: Optional[Exception] = None
        self._thread = threading.Thread(target=self._run, name="dbcontroller-hold", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        changed = self._app._changed
        with changed:
            changed.wait_for(lambda: self._over or self._app._writes == 0)
            if self._over:
                return  # the next call for news waits again if it is still a hold
        try:
            self._app._acknowledge(self._c, self._location)
            self._done = True
        except Exception as err:
            self._error = err
            _break_off(self._conn)  # another controller may take it

    def end(self) -> bool:
        """Ends the wait, and returns whether the hold is acknowledged."""
        with self._app._changed:
            self._over = True
            self._app._changed.notify_all()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._done
