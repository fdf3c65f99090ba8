from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import ssl
import tempfile
import threading
import time
import unittest
import uuid
from types import SimpleNamespace
from unittest import mock

from pymongo import DeleteOne, InsertOne, UpdateMany
from pymongo.errors import AutoReconnect, BulkWriteError, DuplicateKeyError, NetworkTimeout, WriteConcernError
from pymongo.results import BulkWriteResult, DeleteResult, InsertManyResult, InsertOneResult, UpdateResult

from tests.support import BulkOperationBuilder, Controller, Deployment, Session, at, code, driver, eventually, hold, mongo

import dbcontroller_client
from dbcontroller_client import ControllerError, MovedError, NotWrittenError, UnknownOutcomeError
from dbcontroller_client import _controllers, _memory

NOBODY = "127.0.0.1:1"  # a port that nothing listens on
logging.getLogger("dbcontroller_client").addHandler(logging.NullHandler())


class Case(unittest.TestCase):
    def connect(self, *controllers, **options):
        options = {"application": "orders", "mongo": mongo, **options}
        app = dbcontroller_client.connect(controllers=[getattr(c, "address", c) for c in controllers], **options)
        self.addCleanup(self.quiet, app)
        return app

    @staticmethod
    def quiet(app):
        with contextlib.suppress(ControllerError):
            app.close()


def seen(app):
    return app.read(lambda place: place.version)


class Following(Case):
    def test_it_holds_finishes_acknowledges_and_follows(self):
        d = Deployment()
        app = self.connect(Controller(self, d))
        finish, got = threading.Event(), []

        def first(place):
            finish.wait()
            return place.collection("orders").full_name

        threads = [threading.Thread(target=lambda: got.append(app.write(first)))]
        threads[0].start()
        eventually("the write", lambda: app._writes == 1)
        d.set(hold("v1", 2, 5))
        eventually("the news", lambda: app.revision == 2)
        self.assertEqual(d.acks, [], "it says that it holds while a write is in flight")
        threads.append(threading.Thread(target=lambda: got.append(app.write(lambda place: place.collection("orders").full_name))))
        threads[1].start()
        finish.set()
        threads[0].join()
        eventually("the acknowledgement", lambda: d.acks)
        self.assertEqual(got, ["dbc_v1.orders"])
        d.set(at("v2", 3))
        threads[1].join()
        self.assertEqual(got, ["dbc_v1.orders", "dbc_v2.orders"])
        self.assertEqual(d.acks, [5])

    def test_it_shows_that_it_lives_while_a_write_does_not_end(self):
        """Without a call that waits, a controller learns of the end of the process only when its registration is over."""
        d = Deployment()
        c = Controller(self, d)
        app = self.connect(c)
        finish = threading.Event()
        self.addCleanup(finish.set)
        write = threading.Thread(target=lambda: app.write(lambda _: finish.wait()))
        write.start()
        eventually("the write", lambda: app._writes == 1)
        d.set(hold("v1", 2, 1))

        def waits():
            return [ask for ask in list(c.seen) if ask["method"] == "GetLocation" and ask.get("clientId") and ask.get("waitRevision") == "2"]

        eventually("a call that waits for news of the hold", waits)
        self.assertGreaterEqual(waits()[-1]["timeoutMs"], 1000)
        self.assertEqual(d.acks, [], "it says that it holds while a write is in flight")
        finish.set()
        write.join()
        eventually("the acknowledgement", lambda: d.acks)
        d.set(at("v2", 3))
        eventually("the news", lambda: app.revision == 3)

    def test_many_threads_write_and_all_follow(self):
        d = Deployment()
        app = self.connect(Controller(self, d))
        versions, stop = [[] for _ in range(16)], threading.Event()

        def work(of):
            while not stop.is_set():
                of.append(app.write(lambda place: place.version))

        threads = [threading.Thread(target=work, args=(v,)) for v in versions]
        for t in threads:
            t.start()
        eventually("writes on v1", lambda: all(versions))
        d.set(hold("v1", 2, 1))
        eventually("the acknowledgement", lambda: d.acks == [1])
        held = [len(v) for v in versions]
        self.assertEqual(app._writes, 0)
        d.set(at("v2", 3))
        eventually("writes on v2", lambda: all(v[-1] == "v2" for v in versions))
        stop.set()
        for t in threads:
            t.join()
        for v, n in zip(versions, held):
            # A write may have ended, and not have been noted, when all were acknowledged.
            self.assertIn(v.index("v2") - n, (0, 1))

    def test_reads_go_where_it_was_open_last(self):
        d = Deployment()
        app = self.connect(Controller(self, d))
        for location, want in ((hold("v1", 2, 1), "v1"), (hold("v2", 3, 1), "v1"), (at("v2", 4), "v2")):
            d.set(location)
            eventually("the news", lambda: app.revision == int(location["revision"]))
            self.assertEqual(seen(app), want)

    def test_opened_during_a_switch_it_waits(self):
        d = Deployment()
        d.set(hold("v2", 2, 1))
        app = self.connect(Controller(self, d))
        with self.assertRaisesRegex(TimeoutError, "opened during a switch"):
            app.read(lambda place: 1, patience=0.05)
        with self.assertRaises(NotWrittenError):
            app.write(lambda place: 1, patience=0.05)
        d.set(at("v2", 3))
        self.assertEqual(seen(app), "v2")

    def test_the_time_within_a_refused_write_is_no_wait(self):
        d = Deployment()
        app = self.connect(Controller(self, d))
        now, slept, runs = time.monotonic, [0], []

        def write(place):
            runs.append(place.version)
            if len(runs) == 1:
                d.set(at("v2", 2))
                slept[0] = 60  # longer than it may wait
                raise MovedError()
            return place.version

        with mock.patch.object(time, "monotonic", lambda: now() + slept[0]):
            self.assertEqual(app.write(write), "v2")

    def test_the_time_within_a_read_is_no_wait(self):
        d = Deployment()
        app = self.connect(Controller(self, d))
        now, took, runs = time.monotonic, [0], []

        def read(place):
            runs.append(place.version)
            if len(runs) == 1:
                d.set(at("v2", 2))
                took[0] = 60  # a long cursor
                raise MovedError()
            return place.version

        with mock.patch.object(time, "monotonic", lambda: now() + took[0]):
            self.assertEqual(app.read(read), "v2")

    def test_a_transaction_that_keeps_failing_ends_with_the_patience(self):
        app = self.connect(Controller(self, Deployment()))
        now, took, runs = time.monotonic, [0], []

        def write(place):
            runs.append(1)
            took[0] += 120  # as long as a driver repeats it
            raise code(112, "TransientTransactionError")

        with mock.patch.object(time, "monotonic", lambda: now() + took[0]):
            with self.assertRaises(NotWrittenError):
                app.write(write)
        self.assertEqual(len(runs), 1)

    def test_a_read_that_a_rename_ended_waits_for_where_it_went(self):
        for n in (26, 43, 175):
            d = Deployment()
            app = self.connect(Controller(self, d))
            d.set(hold("v1", 2, 1))
            eventually("the acknowledgement", lambda: d.acks == [1])
            runs = []

            def read(place):
                runs.append(place.version)
                if place.version == "v1":
                    if len(runs) == 3:
                        d.set(at("v2", 3))
                    raise code(n)

            app.read(read)
            self.assertEqual(runs[:3], ["v1"] * 3)
            self.assertEqual(runs[-1], "v2")

    def test_another_cluster_needs_another_client(self):
        d = Deployment()
        app = self.connect(Controller(self, d))
        elsewhere = at("v1@b", 2, cluster="two", hosts="db2:27017")
        d.set(elsewhere)
        eventually("the news", lambda: app.revision == 2)
        with self.assertRaisesRegex(RuntimeError, r"another cluster \(db2:27017\): give a function"):
            seen(app)
        asked, d = [], Deployment()
        app = self.connect(Controller(self, d), mongo=lambda where: asked.append(where.cluster) or mongo)
        seen(app)
        d.set(elsewhere)
        eventually("the news", lambda: app.revision == 2)
        seen(app), seen(app)
        self.assertEqual(asked, ["one", "two"])

    def test_a_kind_that_the_version_does_not_have(self):
        app = self.connect(Controller(self, Deployment()))
        with self.assertRaisesRegex(KeyError, "version v1 has no kind 'customers', only orders"):
            app.read(lambda place: place.collection("customers"))

    def test_the_record_was_lost_and_recovered_and_counts_revisions_anew(self):
        d = Deployment()
        d.set(at("v1", 900))
        app = self.connect(Controller(self, d))
        driver.answers = [code(166)]

        def write(place):
            if place.version == "v1":
                d.set(at("v2", 3, epoch="1"))
                place.collection("orders").insert_one({})
            return place.version

        self.assertEqual(app.write(write), "v2")


def one(place, **how):
    place.collection("orders").insert_one({}, **how)


def many(place, **how):
    place.collection("orders").update_many({}, {}, **how)


def beside(place, **how):  # as a library above the driver does
    mongo["own"]["orders"].insert_one({}, **how)


def beside_collection(place):
    return mongo["own"]["orders"]


def upsert(place, upsert=True):
    place.collection("orders").find_one_and_update({}, {}, upsert=upsert)


def bulk(*requests):
    return lambda place: place.collection("orders").bulk_write(list(requests))


def handled(op):
    def run(place):
        try:
            op(place)
        except Exception:
            return
        raise AssertionError("it should have failed")

    return run


def wrapped(op):
    def run(place):
        try:
            op(place)
        except Exception as err:
            raise ValueError("place the order") from err

    return run


def missing(place):
    raise MovedError()


def transaction(*ops):
    def run(place):
        with Session() as session:
            session.with_transaction(lambda s: [op(place, session=s) for op in ops])

    return run


def left_open(place):
    session = Session()
    session.start_transaction()
    one(place, session=session)


def in_a_thread(place):
    t = threading.Thread(target=one, args=(place,))
    t.start()
    t.join()


def failed_bulk(n, **counts):
    return BulkWriteError({"writeErrors": [{"index": 0, "code": n}], "writeConcernErrors": [], "nInserted": 0, "nMatched": 0, "nModified": 0, "nRemoved": 0, "nUpserted": 0, **counts})


inserted = InsertOneResult(1, True)
updated = UpdateResult({"n": 1, "nModified": 1}, True)
updated_none = UpdateResult({"n": 0, "nModified": 0}, True)
AGAIN, LOOK, OWN = "again", UnknownOutcomeError, "own"

# [what, the operations, the driver's answers, what comes of it when the data has moved, and when not]
WRITES = [
    ("a validator", [one], [code(121)], AGAIN),
    ("a view", [one], [code(166)], AGAIN),
    ("an identity", [one], [code(361)], AGAIN),
    ("a write block", [one], [code(371)], AGAIN),
    ("a view, looking for the document", [upsert], [code(166)], AGAIN),
    ("many", [many], [code(166)], LOOK),
    ("many, by a validator", [many], [code(121)], LOOK),
    ("beside the place", [beside], [code(166)], AGAIN),
    ("beside the place, after one", [one, beside], [inserted, code(166)], LOOK),
    ("one, after one beside the place", [beside, one], [inserted, code(166)], LOOK),
    ("in an error of the application", [wrapped(one)], [code(166)], AGAIN),
    ("broken off in an error of the application", [wrapped(one)], [AutoReconnect("gone")], LOOK, LOOK),
    ("something that is not there", [missing], [], AGAIN),
    ("one, then something that is not there", [one, missing], [inserted], LOOK),
    ("a bulk write that did nothing", [bulk(InsertOne({}), DeleteOne({}))], [failed_bulk(166)], AGAIN),
    ("a bulk write that did a part", [bulk(InsertOne({}))], [failed_bulk(166, nInserted=1)], LOOK, LOOK),
    ("a bulk write of many", [bulk(UpdateMany({}, {}))], [failed_bulk(166)], LOOK, LOOK),
    ("a bulk write without a majority", [bulk(InsertOne({}))], [BulkWriteError({"writeErrors": [], "writeConcernErrors": [{"code": 64}]})], LOOK, LOOK),
    # The driver raises what refuses a whole command without the counts of the commands before.
    ("a bulk write whose command was refused", [bulk(InsertOne({}), DeleteOne({}))], [code(166)], LOOK),
    ("a bulk write whose command was not allowed, then one", [handled(bulk(InsertOne({}), DeleteOne({}))), one], [code(13), code(166)], LOOK),
    ("a bulk write of one whose command was refused", [bulk(InsertOne({}))], [code(166)], AGAIN),
    ("many inserts whose command was not allowed, then one", [handled(lambda p: p.collection("orders").insert_many([{}, {}])), one], [code(13), code(166)], LOOK),
    ("a broken connection", [one], [AutoReconnect("gone")], LOOK, LOOK),
    ("a timeout", [one], [NetworkTimeout("late")], LOOK, LOOK),
    ("an interruption", [one], [code(11601)], LOOK, LOOK),
    ("a kill in the middle", [many], [code(175)], LOOK, LOOK),
    ("no majority", [one], [WriteConcernError("no majority", 64, {})], LOOK, LOOK),
    ("what was not done again", [one], [code(91, "NoWritesPerformed")], OWN),
    ("a commit of unknown outcome", [one], [code(166, "UnknownTransactionCommitResult")], LOOK, LOOK),
    ("a duplicate key", [one], [DuplicateKeyError("there", 11000)], OWN),
    ("one, then one", [one, one], [inserted, code(166)], LOOK),
    ("many inserts, then one", [lambda p: p.collection("orders").insert_many([{}]), one], [InsertManyResult([1], True), code(166)], LOOK),
    ("one that was there already, then one", [handled(one), one], [DuplicateKeyError("there", 11000), code(166)], AGAIN),
    ("one that may have been, then one", [handled(one), one], [AutoReconnect("gone"), code(166)], LOOK),
    ("many that found nothing, then one", [many, one], [updated_none, code(166)], AGAIN),
    ("many that were found, then one", [many, one], [updated, code(166)], LOOK),
    ("none deleted, then one", [lambda p: p.collection("orders").delete_many({}), one], [DeleteResult({"n": 0}, True), code(166)], AGAIN),
    ("not acknowledged, then one", [many, one], [UpdateResult({}, False), code(166)], LOOK),
    ("a bulk write that found nothing, then one", [bulk(DeleteOne({})), one], [BulkWriteResult({"nInserted": 0, "nMatched": 0, "nModified": 0, "nRemoved": 0, "nUpserted": 0}, True), code(166)], AGAIN),
    ("not there, then one", [lambda p: upsert(p, False), one], [None, code(166)], AGAIN),
    ("not there and inserted, then one", [upsert, one], [None, code(166)], LOOK),
    ("many torn, then one", [handled(many), one], [code(166), code(166)], LOOK),
    ("a merge, then one", [lambda p: p.collection("orders").aggregate([{"$merge": "other"}]), one], [[], code(166)], LOOK),
    ("reads, then one", [lambda p: p.collection("orders").aggregate([{"$match": {}}]), lambda p: p.collection("orders").find_one({}), one], [[], None, code(166)], AGAIN),
    ("one in a thread, then one", [in_a_thread, one], [inserted, code(166)], LOOK),
    ("a transaction", [transaction(one, one)], [inserted, code(166)], AGAIN),
    ("a transaction of many", [transaction(one, many)], [inserted, code(121)], AGAIN),
    ("a transaction beside the place", [transaction(beside, beside)], [inserted, code(166)], AGAIN),
    ("a transaction that failed, then one", [handled(transaction(one)), one], [code(11000), code(166)], AGAIN),
    ("a transaction, then one", [transaction(one), one], [inserted, code(166)], LOOK),
    ("a transaction that is left open, then one", [left_open, one], [inserted, code(166)], LOOK),
    ("one, then a transaction that was ended", [one, one], [inserted, code(251, "TransientTransactionError")], LOOK, LOOK),
]

if BulkOperationBuilder is not None:
    for of in (beside_collection, lambda p: p.collection("orders")):
        WRITES.append(("a bulk operation, then one", [lambda p, of=of: of(p).initialize_ordered_bulk_op().execute(), one], [{"nInserted": 1}, code(166)], LOOK))
        WRITES.append(("a bulk operation", [lambda p, of=of: of(p).initialize_unordered_bulk_op().execute()], [failed_bulk(166)], LOOK, LOOK))


class Writes(Case):
    def test_what_became_of_it(self):
        for what, operations, answers, moved, *rest in WRITES:
            still = rest[0] if rest else OWN
            for moves in (True, False):
                with self.subTest(what, moves=moves):
                    d = Deployment()
                    app = self.connect(Controller(self, d))
                    driver.answers = list(answers)
                    versions = []

                    def write(place):
                        versions.append(place.version)
                        if place.version == "v1":
                            if moves:
                                d.set(at("v2", 2))
                            for op in operations:
                                op(place)
                        return place.version

                    comes = moved if moves else still
                    if comes == AGAIN:
                        self.assertEqual(app.write(write), "v2")
                        self.assertEqual(versions, ["v1", "v2"])
                    else:
                        with self.assertRaises(UnknownOutcomeError if comes is LOOK else Exception) as raised:
                            app.write(write)
                        self.assertNotIsInstance(raised.exception, (NotWrittenError, AssertionError) if comes is LOOK else (NotWrittenError, AssertionError, UnknownOutcomeError))
                        self.assertEqual(versions, ["v1"])

    def test_a_transaction_is_run_again_and_one_beside_it_is_not(self):
        for beside_it in (False, True):
            d = Deployment()
            app = self.connect(Controller(self, d))
            driver.answers = [inserted, code(166)]

            def run(place, session):
                if place.version == "v1":
                    d.set(at("v2", 2))
                    one(place, **({} if beside_it else {"session": session}))
                    one(place, session=session)
                return place.version

            if beside_it:
                self.assertRaises(UnknownOutcomeError, app.transaction, run)
            else:
                self.assertEqual(app.transaction(run), "v2")

    def test_a_transaction_that_was_ended_is_run_again_without_any_news(self):
        app = self.connect(Controller(self, Deployment()))
        driver.answers = [code(251, "TransientTransactionError"), inserted]
        app.transaction(lambda place, session: one(place, session=session))
        self.assertEqual(driver.answers, [])

    def test_outside_of_a_write_the_driver_is_as_it_was(self):
        driver.answers = [updated, code(166)]
        self.assertIs(mongo["x"]["y"].update_many({}, {}), updated)
        with self.assertRaisesRegex(Exception, "code 166"):
            mongo["x"]["y"].insert_one({})


class AtControllers(Case):
    def test_it_follows_at_another_controller(self):
        d = Deployment()
        first, second = Controller(self, d), Controller(self, d)
        app = self.connect(first, second)
        first.end()
        d.set(hold("v1", 2, 1))
        eventually("the acknowledgement", lambda: 1 in d.acks)  # maybe by both calls that wait
        d.set(at("v2", 3))
        self.assertEqual(app.write(lambda place: place.version), "v2")

    def test_one_that_stands_still_hides_neither_a_hold_nor_its_end(self):
        d = Deployment()
        first, second, third = (Controller(self, d) for _ in range(3))
        app = self.connect(first, second, third)
        eventually("its call for news", lambda: any(s["method"] == "GetLocation" for s in first.seen))
        first.stands = True
        d.set(hold("v1", 2, 1))
        eventually("the acknowledgement", lambda: 1 in d.acks)
        d.set(at("v2", 3))
        self.assertEqual(app.write(lambda place: place.version), "v2")
        self.assertEqual(first.gave_up, 0, "calls that it gave up before it knew")
        ids = [any(s["method"] == "GetLocation" and s["clientId"] for s in c.seen) for c in (first, second, third)]
        self.assertEqual(ids, [True, False, False], "controllers that have its id in a call for news")
        self.assertEqual(len(d.registered), 1)
        first.stands = False

    def standing(self):
        """A function mongo that does not return until the test ends, and its calls."""
        release, calls = threading.Event(), []
        self.addCleanup(release.set)

        def stand(where):
            calls.append(where)
            release.wait()
            raise RuntimeError("it was released")

        return stand, calls

    def test_it_holds_while_the_memory_is_written_and_close_does_not_wait_for_that(self):
        d = Deployment()
        d.set(hold("v1", 1, 1))  # nothing to remember yet: connect returns at once
        stand, calls = self.standing()
        with tempfile.TemporaryDirectory() as folder:
            app = self.connect(Controller(self, d), mongo=stand, memory=os.path.join(folder, "memory"))
            eventually("the first acknowledgement", lambda: d.acks == [1])
            d.set(at("v1", 2))
            eventually("the memory", lambda: calls)
            d.set(hold("v1", 3, 2))
            eventually("the second acknowledgement", lambda: d.acks == [1, 2])
            app.close()
            self.assertEqual(d.registered, set())
            self.assertEqual(len(calls), 1)

    def test_it_holds_while_a_write_opens_a_client(self):
        d = Deployment()
        stand, calls = self.standing()
        app = self.connect(Controller(self, d), mongo=stand)

        def write():
            with contextlib.suppress(NotWrittenError):
                app.write(lambda place: self.fail("it is run"))

        threading.Thread(target=write, daemon=True).start()
        eventually("the function", lambda: calls)
        d.set(hold("v1", 2, 1))
        eventually("the acknowledgement", lambda: d.acks == [1])
        # Another call waits for the same client only as long as its patience.
        self.assertRaisesRegex(TimeoutError, "another call of the function mongo has not returned", app.read, lambda place: 1, patience=0)
        app.close()
        self.assertEqual(d.registered, set())

    def test_a_refused_write_asks_all_though_one_stands_still(self):
        d = Deployment()
        still = Controller(self, d, silent=True)
        app = self.connect(still, Controller(self, d))
        driver.answers = [code(361)]

        def write(place):
            if place.version == "v1":
                d.location = at("v2", 2)  # without waking who waits for it: the refusal is the first to ask
                one(place)
            return place.version

        self.assertEqual(app.write(write), "v2")

    def test_close_deregisters(self):
        d = Deployment()
        first, second = Controller(self, d), Controller(self, d)
        app = self.connect(first, second)
        self.assertEqual(len(d.registered), 1)
        first.end()
        app.close()
        self.assertEqual(d.registered, set())
        app.close()
        self.assertRaises(NotWrittenError, app.write, lambda place: 1)
        self.assertRaisesRegex(RuntimeError, "was closed", app.read, lambda place: 1)

    def test_a_process_that_was_forked_is_refused(self):
        d = Deployment()
        app = self.connect(Controller(self, d))
        with mock.patch("os.getpid", return_value=-1):
            self.assertRaisesRegex(RuntimeError, "forked after connect: call connect in each process", app.write, lambda place: 1)
            self.assertRaisesRegex(RuntimeError, "forked after connect", app.read, lambda place: 1)
            app.close()
        self.assertEqual(len(d.registered), 1, "the child ended the registration of its parent")
        self.assertEqual(seen(app), "v1")

    def test_close_within_a_write_does_not_wait_for_itself(self):
        app = self.connect(Controller(self, Deployment()))

        def write(place):
            if app._writes == 1:  # else close would hang the test where it is not refused
                with mock.patch.object(app._changed, "wait", side_effect=AssertionError("it waits")):
                    app.close()

        self.assertRaisesRegex(RuntimeError, "close is called within a write", app.write, write)
        self.assertEqual(seen(app), "v1")

    def test_certificates_are_read_again(self):
        them = _controllers.Controllers(["localhost:1"], "", None, None, None, None, None)
        with tempfile.TemporaryDirectory() as folder:
            ca = pathlib.Path(folder, "ca")
            made = []
            with mock.patch("ssl.create_default_context", side_effect=lambda cafile=None: made.append(ca.read_text()) or object()):
                ca.touch(0o644)
                ca.write_text("one")
                them = _controllers.Controllers(["localhost:1"], "", None, None, str(ca), None, None)
                first = them.tls
                self.assertIs(them.context(), first)
                ca.write_text("another")
                second = them.context()
                self.assertIsNot(second, first)
                self.assertIs(them.context(), second)
                self.assertEqual(made, ["one", "another"])
                ca.unlink()  # while it is exchanged
                self.assertIs(them.context(), second)
                ca.touch(0o644)
                ca.write_text("a third one")
            with mock.patch("ssl.create_default_context", side_effect=ssl.SSLError("no certificate")):
                self.assertIs(them.context(), second, "what cannot be read is taken")
            with mock.patch("ssl.create_default_context", side_effect=AssertionError("what others can write is taken")):
                ca.chmod(0o620)
                self.assertIs(them.context(), second)

    def test_a_key_that_others_can_read_or_write(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch("ssl.create_default_context"):
            ca, key = pathlib.Path(folder, "ca"), pathlib.Path(folder, "key")
            ca.touch(0o644)
            key.touch(0o600)

            def opened():
                _controllers.Controllers(["localhost:1"], "", None, None, str(ca), str(ca), str(key))

            for mode, warns in ((0o600, 0), (0o644, 1)):
                key.chmod(mode)
                with self.assertLogs("dbcontroller_client", "WARNING") as logged:
                    logging.getLogger("dbcontroller_client").warning("one line at least")
                    opened()
                self.assertEqual(sum("everybody on this machine can read" in line and "which has a key" in line for line in logged.output), warns)
            key.chmod(0o622)
            self.assertRaisesRegex(PermissionError, "chmod go-w it", opened)
            key.chmod(0o600)
            ca.chmod(0o664)
            self.assertRaisesRegex(PermissionError, "chmod go-w it", opened)

    def test_a_registration_whose_answer_was_lost_is_the_same_one(self):
        d = Deployment()
        d.lose_answers = 2
        app = self.connect(Controller(self, d))
        self.assertEqual(len(d.registered), 1)
        app.close()
        self.assertEqual(d.registered, set())

    def test_controllers_of_another_deployment_are_refused(self):
        ours, theirs = Deployment(), Deployment()
        ours.set(at("v1", 5, deployment="ours"))
        theirs.set(at("v2", 900, deployment="theirs"))
        first, second = Controller(self, ours), Controller(self, theirs)
        app = self.connect(first, second)
        first.end()
        eventually("a question by name", lambda: second.seen)
        self.assertTrue(all(s["name"] == "ours" for s in second.seen))
        self.assertEqual((app.write(lambda place: place.version), app.revision), ("v1", 5))

    def test_controllers_of_another_deployment_than_what_is_remembered(self):
        theirs = Deployment()
        theirs.set(at("v2", 900, deployment="theirs"))
        theirs.answers_any_name = True
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "memory")
            file.write_text('{"format":1,"deployment":"ours"}')
            file.chmod(0o600)
            with self.assertRaisesRegex(ControllerError, "this is a controller of theirs, not of ours: correct controllers, or remove "):
                self.connect(Controller(self, theirs), memory=str(file), start_timeout=3600)

    def test_no_controller_at_the_start_and_nothing_remembered(self):
        with self.assertRaisesRegex(ControllerError, r"no controller can be reached \(127\.0\.0\.1:1: .*, and nothing is remembered"):
            self.connect(NOBODY, start_timeout=0.05)

    def test_no_controller_at_the_start_and_something_remembered(self):
        kind, identity = "collection", uuid.uuid4()
        listing = SimpleNamespace(list_collections=lambda filter: [{"type": kind, "info": {"uuid": identity}}])

        class Listed:
            start_session = Session

            def __getitem__(self, database):
                return _Both(database, listing)

            def get_database(self, database, **_):
                return self[database]

        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "memory")
        c = Controller(self, Deployment())
        how = {"mongo": Listed(), "memory": file, "start_timeout": 0.05}
        self.connect(c, NOBODY, **how).close()
        c.end()
        alone = self.connect(NOBODY, **how)
        self.assertEqual(alone.write(lambda place: place.version), "v1")
        driver.answers = [code(166)]
        with self.assertRaises(NotWrittenError) as raised:
            alone.write(one, patience=0.05)
        self.assertEqual(raised.exception.__cause__.code, 166)
        alone.close()
        for kind, identity in (("view", identity), ("collection", uuid.uuid4())):
            with self.assertRaisesRegex(ControllerError, "the data is not where it was: a controller has to be reached"):
                self.connect(NOBODY, **how)
        with self.assertRaisesRegex(ControllerError, "another deployment"):
            self.connect(NOBODY, **how, deployment="other")
        os.chmod(file, 0o620)
        with self.assertRaisesRegex(ControllerError, "it can be written by others than its owner: chmod go-w it"):
            self.connect(NOBODY, **how)
        os.chmod(file, 0o600)
        if os.geteuid() == 0:
            os.chown(file, 12345, 12345)
            with self.assertRaisesRegex(ControllerError, "it belongs to another user: remove it"):
                self.connect(NOBODY, **how)
            os.chown(file, 0, 0)
        text = pathlib.Path(file).read_text()
        pathlib.Path(file).write_text(text[:20])
        with self.assertRaisesRegex(ControllerError, "remember where the data is"):
            self.connect(NOBODY, **how)
        self.assertEqual(_memory.deployment_of(file), "")

    def test_what_no_controller_will_answer_otherwise_is_an_error_at_once(self):
        with self.assertRaisesRegex(ControllerError, "who is it"):
            self.connect(Controller(self, Deployment(), status=(401, {"code": "unauthenticated", "message": "who is it?"})))

    def test_one_refusal_ends_no_start(self):
        d = Deployment()

        def refusing(code, status=401):
            return Controller(self, Deployment(), status=(status, {"code": code, "message": "refused"}))

        late = Controller(self, d, status=(503, {"code": "unavailable", "message": "stopping"}), times=2)
        for others in ([refusing("unauthenticated"), refusing("permission_denied", 403), Controller(self, d)], [refusing("invalid_argument", 400), late]):
            self.connect(*others, start_timeout=3600).close()
        with self.assertRaisesRegex(ControllerError, "refused.*refused") as raised:
            self.connect(NOBODY, refusing("permission_denied", 403), refusing("unauthenticated"), start_timeout=3600)
        self.assertEqual(raised.exception.code, "unauthenticated")

    def test_a_token_in_a_file(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "token")
        pathlib.Path(file).write_text("let-me-in\n")
        c = Controller(self, Deployment())
        for mode, warns in ((0o600, 0), (0o644, 1)):
            os.chmod(file, mode)
            with self.assertLogs("dbcontroller_client", "WARNING") as logged:
                logging.getLogger("dbcontroller_client").warning("one line at least")
                self.connect(c, token_file=file).close()
            self.assertEqual(sum("everybody on this machine can read" in line for line in logged.output), warns)
        self.assertTrue(c.seen and all(s["authorization"] == "Bearer let-me-in" for s in c.seen))
        for mode in (0o666, 0o620):
            os.chmod(file, mode)
            with self.assertRaisesRegex(ControllerError, "it can be written by others than its owner: chmod go-w it"):
                self.connect(c, token_file=file, start_timeout=0.05)

    def test_a_token(self):
        c = Controller(self, Deployment())
        self.connect(c, token="let-me-in").close()
        self.assertTrue(c.seen and all(s["authorization"] == "Bearer let-me-in" for s in c.seen))
        with self.assertRaisesRegex(ValueError, "a token would be readable") as raised:
            self.connect("http://db.example.com:7090", token="let-me-in")
        self.assertNotIn("let-me-in", str(raised.exception))

    def test_a_configuration_that_is_none(self):
        for change, want in (
            ({"controllers": []}, "no controllers are given"),
            ({"controllers": "db1:7090"}, "give a list"),
            ({"application": ""}, "the application has no name"),
            ({"application": "a b"}, "letters, digits"),
            ({"mongo": None}, "give mongo"),
            ({"mongo": type("AsyncMongoClient", (), {})()}, "asynchronous clients are not supported"),
            ({"ttl": 0.01}, "ttl is 0.01"),
            ({"cert_file": "x"}, "belong together"),
            ({"controllers": ["http://u:p@db/"]}, "is no address"),
        ):
            with self.subTest(want), self.assertRaisesRegex((ValueError, TypeError), want):
                dbcontroller_client.connect(**{"controllers": [NOBODY], "application": "orders", "mongo": mongo, **change})


class _Both:
    """A database that lists collections, and has those of the driver without a server."""

    def __init__(self, database, listing):
        self.list_collections = listing.list_collections
        self.database = database

    def __getitem__(self, name):
        return mongo[self.database][name]


if __name__ == "__main__":
    unittest.main()
