"""A PyMongo application in both of its versions: the processes of integration.TestPyMongoApplication.

It tells what it does on standard output, a line of JSON each, before and after each write, by two
threads over one App. On standard input it is told to stand still within its next update or
transaction, until the next line. Without controllers it is the application as it was before, which
makes its indexes and fills its collections.
"""
from __future__ import annotations

import datetime
import json
import os
import pathlib
import queue
import random
import signal
import sys
import threading
import traceback

from bson import ObjectId
from pymongo import MongoClient

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import dbcontroller_client
from dbcontroller_client import MovedError, UnknownOutcomeError

part = json.loads(os.environ["APPLICATION"])
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
lines: "queue.Queue[str]" = queue.Queue()
threading.Thread(target=lambda: [lines.put(line.strip()) for line in sys.stdin], daemon=True).start()
telling = threading.Lock()


def tell(**line):
    with telling:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def customer_of(version, id, n):
    doc = {"_id": id, "name": f"customer {id}", "n": n, "address": {"street": f"street {n}"}}
    if version == "v1":
        doc["address"]["city"] = f"city {n}"
        return {**doc, "mail": f"{id}@example.com"}
    return {**doc, "email": f"{id}@example.com", "city": f"city {n}"}


def order_of(version, id, customer, n):
    field, count, first = ("lines", "count", ObjectId()) if version == "v1" else ("items", "quantity", ObjectId())
    return {
        "_id": id, "customer": customer, "n": n, "first": str(first),
        field: [{"sku": f"sku {n}", count: n % 7, "_id": first}, {"sku": "more", count: 1, "_id": ObjectId()}], **stamps(),
    }


def stamps():
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"createdAt": now, "updatedAt": now}


mongo = MongoClient(part["uri"], appname=part["name"], w="majority")
if not part.get("controllers"):
    db = mongo[part["database"]]
    db.customers.create_index("mail", unique=True)
    for _ in range(30):
        id, of = ObjectId(), ObjectId()
        for key in (f"customers/{id}", f"orders/{of}"):
            tell(begin=key, state="operation 0")
        db.customers.insert_one({**customer_of("v1", id, 0), **stamps()})
        db.orders.insert_one(order_of("v1", of, id, 0))
        for key in (f"customers/{id}", f"orders/{of}"):
            tell(ack=key, version="v1")
    sys.exit(0)

app = dbcontroller_client.connect(controllers=part["controllers"], application=part["name"], mongo=mongo, patience=180)
app.write(lambda at: at.collection("customers").create_index("mail" if at.version == "v1" else "email", unique=True))


def wrote(keys, state, stands, run):
    for key in keys:
        tell(begin=key, state=state)
    versions = []

    def to(at):
        versions.append(at.version)
        if len(versions) > 1:
            tell(retry=at.version)
        elif stands:
            tell(asleep=True)
            lines.get()

    try:
        run(to)
    except Exception as err:
        for key in keys:
            tell(unknown=key)
        if not isinstance(err, UnknownOutcomeError):
            tell(fail=f"{keys}: {traceback.format_exc()}")
        return False
    for key in keys:
        tell(ack=key, version=versions[-1])
    return True


def change(at, id, n, **session):
    doc = customer_of(at.version, id, n)
    del doc["_id"]
    doc["updatedAt"] = stamps()["updatedAt"]
    # Past at, as a library above the driver does it, is seen as well.
    orders = at.collection("customers")
    found = at.client[orders.database.name][orders.name].update_one({"_id": id}, {"$set": doc}, **session)
    if found.matched_count == 0:
        raise MovedError()


def insert(to, id, n):
    def fn(at):
        to(at)
        at.collection("customers").insert_one({**customer_of(at.version, id, n), **stamps()})

    app.write(fn)


def delete(to, id):
    def fn(at):
        to(at)
        if at.collection("customers").delete_one({"_id": id}).deleted_count == 0:
            raise MovedError()

    app.write(fn)


def update(to, id, n):
    def fn(at):
        to(at)
        change(at, id, n)

    app.write(fn)


def place(to, id, order, n):
    def fn(at, session):
        to(at)
        change(at, id, n, session=session)
        at.collection("orders").insert_one(order_of(at.version, order, id, n), session=session)

    app.transaction(fn)


def read(id, order):
    """What a reference leads to, as populate does."""
    at_version = []

    def fn(at):
        at_version[:] = [at.version]
        found = list(at.collection("orders").aggregate([
            {"$match": {"_id": order}},
            {"$lookup": {"from": "customers", "localField": "customer", "foreignField": "_id", "as": "found"}},
        ]))
        return found[0]["found"][0]["n"] if found and found[0]["found"] else None

    n = app.read(fn)
    tell(read=f"customers/{id}", state="" if n is None else f"operation {n}", version=at_version[0])


def live(first):
    mine, n = [], 0  # [id, orders]
    while not ended.wait(0.04):
        n += 1
        state, dice, stands = f"operation {n}", random.randrange(10) if len(mine) >= 3 else 0, False
        if first and mine and not lines.empty():
            dice, stands = (5 if lines.get() == "update" else 3), True
        one = random.choice(mine) if mine else None
        if dice < 2:
            id = ObjectId()
            if wrote([f"customers/{id}"], state, stands, lambda to: insert(to, id, n)):
                mine.append((id, []))
        elif dice == 2 and not one[1]:
            mine.remove(one)
            wrote([f"customers/{one[0]}"], "", stands, lambda to: delete(to, one[0]))
        elif dice < 5:
            order = ObjectId()
            if wrote([f"customers/{one[0]}", f"orders/{order}"], state, stands, lambda to: place(to, one[0], order, n)):
                one[1].append(order)
            else:
                mine.remove(one)
        elif dice < 8 or not one[1]:
            if not wrote([f"customers/{one[0]}"], state, stands, lambda to: update(to, one[0], n)):
                mine.remove(one)
        else:
            try:
                read(one[0], one[1][-1])
            except Exception:
                tell(fail=f"read of {one[0]}: {traceback.format_exc()}")


threads = [threading.Thread(target=live, args=(i == 0,)) for i in range(2)]
for t in threads:
    t.start()
for t in threads:
    t.join()
app.close()
mongo.close()
