from __future__ import annotations

import uuid
from types import SimpleNamespace

from tests.support import Controller, Deployment, at, eventually, hold
from tests.test_app import Case

from dbcontroller_client import NotWrittenError

OURS = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
OTHER = uuid.UUID("fedcba98-7654-3210-fedc-ba9876543210")
VIEW = {"type": "view", "info": {"readOnly": True}}


def identified(version, revision):
    location = at(version, revision)
    location["kinds"][0]["id"] = OURS.hex
    return location


def collection(id):
    return {"type": "collection", "info": {"uuid": id}}


class Answering:
    """A client whose server gives these answers about collections, one after the other, and then none."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def start_session(self):
        raise AssertionError("no transaction is expected")

    def get_database(self, *_, **__):
        return SimpleNamespace(list_collections=lambda filter: [a for a in [self.answers.pop(0)] if a])


class Recognizing(Case):
    def opened(self, location, mongo):
        d = Deployment()
        d.set(location)
        return d, self.connect(Controller(self, d), mongo=mongo)

    def test_a_client_that_does_not_reach_the_collection_is_refused(self):
        for answer in (None, collection(OTHER), VIEW):
            _, app = self.opened(identified("v2", 1), Answering(answer, answer))
            runs = []
            want = f"the data of v2 is in the cluster at db1:27017, and mongo finds no collection dbc_v2.orders with UUID {OURS.hex}: connect it to that cluster"
            with self.assertRaisesRegex(NotWrittenError, want):
                app.write(lambda at: runs.append(at.version))
            with self.assertRaisesRegex(Exception, want):
                app.read(lambda at: runs.append(at.version))
            self.assertEqual(runs, [])

    def test_a_cluster_is_recognized_once_and_by_one_identity(self):
        location = identified("v1", 1)
        location["kinds"][:0] = [
            {"kind": "new", "database": "dbc_v1", "collection": "new", "id": ""},
            {"kind": "replaced", "database": "dbc_v1", "collection": "replaced", "id": OURS.hex},
        ]
        _, app = self.opened(location, Answering(collection(OTHER), collection(OURS)))
        self.assertEqual(app.write(lambda at: at.version), "v1")
        self.assertEqual(app.write(lambda at: at.version), "v1")  # it would find no answer

    def test_data_that_moves_while_a_client_looks_is_no_other_cluster(self):
        client = Answering(VIEW, collection(OURS))

        def mongo(_):
            d.set(identified("v2", 2))
            return client

        d, app = self.opened(identified("v1", 1), mongo)
        self.assertEqual(app.write(lambda at: at.version), "v2")

    def test_a_first_read_during_a_switch_goes_on_behind_the_fence(self):
        d, app = self.opened(identified("v1", 1), Answering(VIEW))
        d.set(hold("v1", 2, 1))
        eventually("the acknowledgement", lambda: d.acks == [1])
        self.assertEqual(app.read(lambda at: at.version), "v1")
