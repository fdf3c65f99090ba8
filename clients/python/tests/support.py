"""A controller as an application sees it, and a driver without a server."""
from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import OperationFailure


def at(version, revision, **more):
    return {
        "state": "OPEN", "version": version, "revision": str(revision), "database": f"dbc_{version}", "cluster": "one", "hosts": "db1:27017",
        "upgradeId": "", "attempt": "0", "kinds": [{"kind": "orders", "database": f"dbc_{version}", "collection": "orders", "fixed": True}], **more,
    }


def hold(version, revision, attempt):
    return at(version, revision, state="HOLD", upgradeId="up-1", attempt=str(attempt))


class Deployment:
    """What all controllers of a test know."""

    def __init__(self):
        self.changed = threading.Condition()
        self.location = at("v1", 1)
        self.registered = set()
        self.acks = []
        self.lose_answers = 0  # of so many registrations more
        self.answers_any_name = False

    def set(self, location):
        with self.changed:
            self.location = location
            self.changed.notify_all()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        pass  # a client that is gone


class Controller:
    def __init__(self, test, deployment, status=None, times=None, silent=False):
        """The first times answers are status; None: all."""
        self.seen = []
        self.stands = False  # it answers no call any more, as a process that was stopped
        self.gave_up = 0  # calls that ended so
        self.sockets = []
        self.ended = threading.Event()
        of = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer is one packet

            def log_message(self, *_):
                pass

            def answer(self, body, code=200):
                text = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def stands_still(self):
                if of.stands:
                    self.connection.recv(1)  # returns when the client closes the connection
                    of.gave_up += 1
                    self.close_connection = True
                return of.stands

            def do_POST(self):
                nonlocal times
                of.sockets.append(self.connection)
                if of.ended.is_set():  # end() may have looked at the connections before this one was there
                    self.close_connection = True
                    return None
                ask = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                method = self.path.split("/")[-1]
                of.seen.append({"method": method, "authorization": self.headers.get("Authorization"), **ask})
                d = deployment
                if self.stands_still():
                    return None
                if silent:
                    of.ended.wait()
                    return
                if status and times != 0:
                    times = times and times - 1
                    return self.answer(status[1], status[0])
                of_deployment = d.location.get("deployment")
                if ask.get("name") and of_deployment and not d.answers_any_name and ask["name"] != of_deployment:
                    return self.answer({"code": "not_found", "message": "there is no such deployment"}, 404)
                if method == "RegisterClient":
                    d.registered.add(ask["clientId"])
                    d.lose_answers -= 1
                    if d.lose_answers >= 0:
                        self.close_connection = True
                        return None
                    return self.answer({"clientId": ask["clientId"], "ttlMs": ask["ttlMs"], "location": d.location})
                if method == "DeregisterClient":
                    d.registered.discard(ask["clientId"])
                    return self.answer({})
                if method == "AckHold":
                    d.acks.append(int(ask["attempt"]))
                    return self.answer({"acked": 1, "total": 1})
                with d.changed:
                    if ask.get("waitRevision"):
                        d.changed.wait_for(lambda: int(d.location["revision"]) > int(ask["waitRevision"]) or of.ended.is_set(), ask["timeoutMs"] / 1000)
                    location = d.location
                if self.stands_still():
                    return None
                return self.answer(location)

        self.server = Server(("127.0.0.1", 0), Handler)
        self.deployment = deployment
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        test.addCleanup(self.end)

    def end(self):
        if self.ended.is_set():
            return
        self.ended.set()
        with self.deployment.changed:
            self.deployment.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
        for s in self.sockets:
            try:
                s.shutdown(2)
            except OSError:
                pass


class Session:
    """A session as the driver's, without a server."""

    def __init__(self):
        self.in_transaction = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.in_transaction:
            self.abort_transaction()

    def start_transaction(self):
        self.in_transaction = True

    def abort_transaction(self):
        self.in_transaction = False

    def commit_transaction(self):
        self.in_transaction = False

    def with_transaction(self, fn):
        self.start_transaction()
        try:
            result = fn(self)
        except Exception:
            if self.in_transaction:
                self.abort_transaction()
            raise
        self.commit_transaction()
        return result


class Driver:
    """Answers in the place of servers, for the whole process: before the client sees the driver's classes."""

    def __init__(self):
        self.answers = []

    def __call__(self, *args, **kwargs):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


driver = Driver()
for _name in ("insert_one", "update_one", "update_many", "delete_many", "find_one_and_update", "insert_many", "bulk_write", "aggregate", "find_one"):
    setattr(Collection, _name, lambda self, *args, **kwargs: driver(*args, **kwargs))
try:
    from pymongo.bulk import BulkOperationBuilder  # of pymongo 3

    BulkOperationBuilder.execute = lambda self, *args, **kwargs: driver(*args, **kwargs)
except ImportError:
    BulkOperationBuilder = None

mongo: MongoClient = MongoClient("mongodb://127.0.0.1:1", connect=False)
mongo.start_session = Session


def code(n, *labels):
    return OperationFailure(f"code {n}", n, {"errorLabels": list(labels), "code": n})


def eventually(what, ok):
    until = time.monotonic() + 60
    while not ok():
        if time.monotonic() > until:
            raise AssertionError(f"{what} does not come")
        time.sleep(0.002)
