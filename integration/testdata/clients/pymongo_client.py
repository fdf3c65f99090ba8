"""An application on PyMongo that knows nothing of dbcontroller. See TestUnmodifiedClients for its steps."""
import json
import os
import random
import sys
import threading

from pymongo import DeleteOne, InsertOne, MongoClient, ReturnDocument, UpdateOne
from pymongo.errors import ConnectionFailure, OperationFailure

part = json.loads(os.environ["CLIENT"])
name = part["name"]
client = MongoClient(part["uri"])
db = client[part["database"]]
ended = threading.Event()
printing = threading.Lock()


def tell(line):
    with printing:
        print(json.dumps(line), flush=True)


def want(what, got, wanted):
    if got != wanted:
        raise AssertionError("%s: got %r, want %r" % (what, got, wanted))


class Worker:
    def __init__(self, number):
        self.id = "%s-%d" % (name, number)
        self.doing = ""

    def step(self, n):
        key = "%s-%d" % (self.id, n)
        self.doing = "count"
        res = db.accounts.update_one({"_id": self.id}, {"$inc": {"n": 1}})
        want("count", res.modified_count, 1)
        self.doing = "transaction"
        with client.start_session() as session:
            session.with_transaction(lambda s: self.transfer(s, key))
        self.doing = "bulk write"
        inserts = [InsertOne({"_id": "%s-b%d" % (key, i), "n": n}) for i in range(5)]
        tally = UpdateOne({"_id": self.id + "-tally"}, {"$inc": {"n": 1}}, upsert=True)
        res = db.entries.bulk_write(inserts + [tally], ordered=n % 2 == 0)
        want("bulk write", res.inserted_count, 5)
        self.doing = "find and modify"
        doc = db.accounts.find_one_and_update(
            {"_id": self.id}, {"$inc": {"found": 1}}, return_document=ReturnDocument.AFTER)
        want("find and modify", doc["found"], n)
        self.doing = "delete"
        res = db.entries.delete_one({"_id": key + "-b0"})
        want("delete", res.deleted_count, 1)
        self.doing = "bulk delete"
        res = db.entries.bulk_write([DeleteOne({"_id": key + "-b1"}), DeleteOne({"_id": key + "-b2"})])
        want("bulk delete", res.deleted_count, 2)
        self.doing = "read"
        want("read", db.entries.find_one({"_id": key + "-t"}), {"_id": key + "-t", "n": n})
        if n % part["scan"] == 0:
            self.doing = "cursor"
            want("cursor", sorted(self.scan()), list(range(part["records"])))

    def scan(self):
        while True:
            try:
                return [d["n"] for d in db.records.find({}, batch_size=200)]
            except (ConnectionFailure, OperationFailure) as err:
                # A lost router: the connection breaks, or another one does not know the cursor.
                if not part["killed"] or getattr(err, "code", 43) not in (6, 43):
                    raise
                tell({"again": 1})

    def transfer(self, session, key):
        source, target = random.randrange(part["accounts"]), random.randrange(part["accounts"])
        db.accounts.update_one({"_id": source}, {"$inc": {"money": -1}}, session=session)
        db.accounts.update_one({"_id": target}, {"$inc": {"money": 1}}, session=session)
        db.entries.insert_one({"_id": key + "-t", "n": int(key.rsplit("-", 1)[1])}, session=session)

    def run(self):
        db.accounts.insert_one({"_id": self.id, "n": 0, "found": 0})
        n = 0
        try:
            while not ended.is_set():
                self.step(n + 1)
                n += 1
                tell({"step": 1})
        except Exception as err:  # pylint: disable=broad-except
            tell({"failed": "%s, step %d, %s: %s: %s %s" % (
                self.id, n + 1, self.doing, type(err).__name__, err, getattr(err, "details", ""))})
        tell({"worker": self.id, "steps": n})


threads = [threading.Thread(target=Worker(i).run) for i in range(part["workers"])]
for thread in threads:
    thread.start()
sys.stdin.read()
ended.set()
for thread in threads:
    thread.join()
client.close()
