// Writes of the function that go past at: through the application's own collections, as those of
// Mongoose are. The driver is real but for its answers.
import test from 'node:test'
import assert from 'node:assert/strict'
import { MongoBulkWriteError, MongoClient, MongoClientBulkWriteError, MongoNetworkError, MongoServerError } from 'mongodb'
import { MovedError, NotWrittenError, UnknownOutcomeError, connect } from '../index.js'
import { Deployment, at, controller } from './controller.js'

const code = (n, ...labels) => new MongoServerError({ code: n, message: `code ${n}`, errorLabels: labels })
const lost = () => new MongoNetworkError('gone')
const bulk = of => new MongoBulkWriteError(of, { insertedCount: 0, matchedCount: 0, modifiedCount: 0, deletedCount: 0, upsertedCount: 0 })
const clientBulk = cause => Object.assign(new MongoClientBulkWriteError({ message: 'bulk' }), { cause })
// Errors of Mongoose are told by the names of their classes.
const named = name => new ({ [name]: class extends Error {} })[name](name)

const mongo = new MongoClient('mongodb://127.0.0.1:1')
let answers = []
const answer = async () => {
  const next = answers.shift()
  if (next instanceof Error) throw next
  return next
}
const Collection = Object.getPrototypeOf(mongo.db('x').collection('x'))
for (const name of ['insertOne', 'updateOne', 'updateMany', 'findOneAndUpdate', 'bulkWrite']) Collection[name] = answer
Object.getPrototypeOf(mongo).bulkWrite = answer

for (const name of ['initializeOrderedBulkOp', 'initializeUnorderedBulkOp']) {
  const make = Collection[name]
  Collection[name] = function (...args) { // the driver's needs a connection for the limits of the server
    this.client.topology = { lastHello: () => ({}), capabilities: {}, s: { options: {} } }
    try {
      return Object.assign(make.apply(this, args), { execute: answer })
    } finally {
      this.client.topology = undefined
    }
  }
}

const orders = mongo.db('own').collection('orders')
const one = options => orders.insertOne({}, options)
const many = options => orders.updateMany({}, {}, options)
const inserted = { acknowledged: true, insertedId: 1 }
const updated = { acknowledged: true, matchedCount: 1, modifiedCount: 1, upsertedCount: 0 }
const handled = of => of.then(() => assert.fail('it should have failed'), () => {})
const wrapped = of => of.catch(err => { throw new Error('place the order', { cause: err }) })
function added (add, of = orders, ordered = true, options) {
  const b = ordered ? of.initializeOrderedBulkOp(options) : of.initializeUnorderedBulkOp(options)
  add(b)
  return b
}
const inTransaction = fn => mongo.withSession(session => session.withTransaction(() => fn({ session })))

const yes = 'again'
const unknown = 'unknown'
const own = 'own' // error
// [what, the operations, their answers, what comes of it when the data has moved, and when not]
for (const [what, fn, said, moved, still = own] of [
  ['one', () => one(), [code(166)], yes],
  ['one, by a validator', () => one(), [code(121)], yes],
  ['one, by a write block', () => one(), [code(371)], yes],
  ['one, by its identity', () => one(), [code(361)], yes],
  ['one, in an error of the application', () => wrapped(one()), [code(166)], yes],
  ['one that broke off, in an error of the application', () => wrapped(one()), [lost()], unknown, unknown],
  ['one that was not done again, in an error of the application', () => wrapped(one()), [Object.assign(code(91, 'NoWritesPerformed'), { cause: lost() })], own],
  ['one, then one', async () => { await one(); await one() }, [inserted, code(166)], unknown],
  ['one, then one of at', async at => { await one(); await at.collection('orders').insertOne({}) }, [inserted, code(166)], unknown],
  ['one of at, then one', async at => { await at.collection('orders').insertOne({}); await one() }, [inserted, code(166)], unknown],
  ['one, then something missing', async () => { await one(); throw new MovedError() }, [inserted], unknown],
  ['one that was there already, then one', async () => { await handled(one()); await one() }, [code(11000), code(166)], yes],
  ['many', () => many(), [code(166)], unknown],
  ['a bulk write', () => orders.bulkWrite([{ insertOne: {} }]), [bulk(code(166))], yes],
  ['a bulk write with many', () => orders.bulkWrite([{ updateMany: {} }]), [bulk(code(166))], unknown, unknown],
  ['a bulk write that broke off', () => orders.bulkWrite([{ insertOne: {} }]), [bulk(lost())], unknown, unknown],
  ['a bulk write that broke off, then one', async () => { await handled(orders.bulkWrite([{ insertOne: {} }])); await one() }, [bulk(lost()), code(166)], unknown],
  ['a bulk write that no majority has', () => orders.bulkWrite([{ insertOne: {} }]), [bulk({ code: 64, message: 'no majority' })], unknown, unknown],
  ['a bulk write of the client', () => mongo.bulkWrite([{ name: 'insertOne' }]), [clientBulk(code(166))], yes],
  ['a bulk write of the client with many', () => mongo.bulkWrite([{ name: 'updateMany' }]), [clientBulk(code(166))], unknown, unknown],
  ['a bulk write of the client that broke off', () => mongo.bulkWrite([{ name: 'insertOne' }]), [clientBulk(lost())], unknown, unknown],
  ['a bulk operation', () => added(b => b.insert({})).execute(), [bulk(code(166))], yes],
  ['a bulk operation, then one', async () => { await added(b => b.insert({})).execute(); await one() }, [inserted, code(166)], unknown],
  ['a bulk operation of at, then one', async at => { await added(b => b.insert({}), at.collection('orders')).execute(); await one() }, [inserted, code(166)], unknown],
  ['an unordered bulk operation, then one', async () => { await added(b => b.insert({}), orders, false).execute(); await one() }, [inserted, code(166)], unknown],
  ['a bulk operation with an update of many', () => added(b => b.find({}).update({ $set: {} })).execute(), [bulk(code(166))], unknown, unknown],
  ['a bulk operation with a delete of many', () => added(b => b.find({}).delete()).execute(), [bulk(code(166))], unknown, unknown],
  ['a bulk operation with one of each', () => added(b => { b.find({}).updateOne({ $set: {} }); b.find({}).deleteOne() }).execute(), [bulk(code(166))], yes],
  ['a query that begins when it is awaited', () => ({ then: (...handlers) => one().then(...handlers) }), [code(166)], yes],
  ['one, then a query that begins when it is awaited', async () => { await one(); return { then: (...handlers) => one().then(...handlers) } }, [inserted, code(166)], unknown],
  ['a document of Mongoose that is not there', () => { throw named('DocumentNotFoundError') }, [], yes],
  ['a document of Mongoose of another version', () => { throw named('VersionError') }, [], yes],
  ['what Mongoose finds invalid', () => { throw named('ValidationError') }, [], own],
  ['what Mongoose saves twice at once', () => { throw named('ParallelSaveError') }, [], own],
  ['a transaction', () => inTransaction(async o => { await one(o); await one(o) }), [inserted, code(166)], yes],
  ['a transaction, of many', () => inTransaction(async o => { await one(o); await many(o) }), [inserted, code(166)], yes],
  ['a transaction that failed, then one', async () => { await handled(inTransaction(one)); await one() }, [code(11000), code(166)], yes],
  ['a transaction, then one', async () => { await inTransaction(one); await one() }, [inserted, code(166)], unknown],
  ['a transaction, and one next to it', () => inTransaction(async o => { await one(); await one(o) }), [inserted, code(166)], unknown],
  ['a transaction with a bulk operation', () => inTransaction(async o => { await added(b => b.insert({}), orders, true, o).execute(); await one(o) }), [inserted, code(166)], yes],
  ['a transaction that is left open', async () => { const session = mongo.startSession(); session.startTransaction(); await one({ session }); await one() }, [inserted, code(166)], unknown]
]) {
  test(`a write beside at: ${what}`, async t => {
    for (const moves of [true, false]) {
      answers = [...said]
      const d = new Deployment()
      const app = await connect({ controllers: [(await controller(t, d)).address], application: 'orders', mongo })
      t.after(() => app.close().catch(() => {}))
      const versions = []
      const write = app.write(place => {
        versions.push(place.version)
        if (place.version !== 'v1') return place.version
        if (moves) d.set(at('v2', 2))
        return fn(place)
      })
      const comes = moves ? moved : still
      if (comes === yes) assert.equal(await write, 'v2')
      else await assert.rejects(write, e => e instanceof UnknownOutcomeError === (comes === unknown) && !(e instanceof NotWrittenError))
      assert.deepEqual(versions, comes === yes ? ['v1', 'v2'] : ['v1'])
    }
  })
}

test('a transaction of App, and one next to it', async t => {
  answers = [inserted, code(166)]
  const d = new Deployment()
  const app = await connect({ controllers: [(await controller(t, d)).address], application: 'orders', mongo })
  t.after(() => app.close().catch(() => {}))
  await assert.rejects(app.transaction(async (place, session) => {
    d.set(at('v2', 2))
    await one() // the session was forgotten
    await one({ session })
  }), UnknownOutcomeError)
})

test('outside of a write the driver is as it was', async () => {
  answers = [updated, code(166)]
  assert.equal(await many(), updated)
  await assert.rejects(one(), /code 166/)
})
