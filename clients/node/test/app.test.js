import test from 'node:test'
import assert from 'node:assert/strict'
import { MongoBulkWriteError, MongoNetworkError, MongoServerError } from 'mongodb'
import { MovedError, NotWrittenError, UnknownOutcomeError, connect } from '../index.js'
import { Deployment, at, controller, eventually, hold, mongo } from './controller.js'

async function opened (t, d = new Deployment(), options = {}) {
  const c = await controller(t, d)
  const app = await connect({ controllers: [c.address], application: 'orders', mongo, ...options })
  t.after(() => app.close().catch(() => {}))
  return { d, app, c }
}

// Without a call that waits, a controller learns of the end of the process only when its registration is over.
test('it shows that it lives while a write does not end', async t => {
  const { d, app, c } = await opened(t)
  let finish
  const finished = new Promise(resolve => { finish = resolve })
  const write = app.write(() => finished)
  d.set(hold('v1', 2, 1))
  const waits = () => c.seen.findLast(call => call.method === 'GetLocation' && call.clientId && Number(call.waitRevision) === 2)
  try {
    await eventually('a call that waits for news of the hold', waits)
    assert.ok(waits().timeoutMs >= 1000, `it waits for ${waits().timeoutMs} ms only`)
    assert.deepEqual(d.acks, [], 'it says that it holds while a write is in flight')
  } finally {
    finish()
  }
  await write
  await eventually('the acknowledgement', () => d.acks.length > 0)
  d.set(at('v2', 3))
  await eventually('the news', () => app.revision === 3)
})

const seen = async app => app.read(({ version }) => version)

test('it holds, finishes, acknowledges and follows', async t => {
  const { d, app } = await opened(t)
  let finish
  const finished = new Promise(resolve => { finish = resolve })
  const first = app.write(async at => { await finished; return at.collection('orders').place })
  d.set(hold('v1', 2, 5))
  await eventually('the news', () => app.revision === 2)
  await new Promise(resolve => setTimeout(resolve, 250))
  assert.deepEqual(d.acks, [], 'it says that it holds while a write is in flight')
  const second = app.write(at => at.collection('orders').place)
  let ended = false
  second.then(() => { ended = true })
  finish()
  assert.equal(await first, 'dbc_v1.orders')
  await eventually('the acknowledgement', () => d.acks.length > 0)
  assert.equal(ended, false, 'a write is made while writes are held')
  d.set(at('v2', 3))
  assert.equal(await second, 'dbc_v2.orders')
  assert.deepEqual(d.acks, [5])
})

test('reads go where it was open last', async t => {
  const { d, app } = await opened(t)
  for (const [location, want] of [[hold('v1', 2, 1), 'v1'], [hold('v2', 3, 1), 'v1'], [at('v2', 4), 'v2']]) {
    d.set(location)
    await eventually('the news', () => app.revision === Number(location.revision))
    assert.equal(await seen(app), want)
  }
})

test('opened during a switch it waits', async t => {
  const d = new Deployment()
  d.set(hold('v2', 2, 1))
  const { app } = await opened(t, d)
  await assert.rejects(app.read(() => 1, { patience: 50 }), /opened during a switch/)
  await assert.rejects(app.write(() => 1, { patience: 50 }), NotWrittenError)
  d.set(at('v2', 3))
  assert.equal(await seen(app), 'v2')
})

test('the time within a refused write is no wait', async t => {
  const { d, app } = await opened(t)
  const now = Date.now
  t.after(() => { Date.now = now })
  let runs = 0
  assert.equal(await app.write(place => {
    if (++runs > 1) return place.version
    d.set(at('v2', 2))
    Date.now = () => now() + 60_000 // it slept for longer than it may wait
    throw new MovedError()
  }), 'v2')
})

test('the time within a read is no wait', async t => {
  const { d, app } = await opened(t)
  const now = Date.now
  t.after(() => { Date.now = now })
  let runs = 0
  assert.equal(await app.read(place => {
    if (++runs > 1) return place.version
    d.set(at('v2', 2))
    Date.now = () => now() + 60_000 // a long cursor
    throw new MovedError()
  }), 'v2')
})

const code = (n, ...labels) => Object.assign(new MongoServerError({ code: n, message: `code ${n}`, errorLabels: labels }), {})
const bulk = counts => new MongoBulkWriteError({ code: 166, message: 'bulk', writeErrors: [] }, { insertedCount: 0, ...counts })

test('a transaction that keeps failing ends with the patience', async t => {
  const { app } = await opened(t)
  const now = Date.now
  t.after(() => { Date.now = now })
  let runs = 0
  await assert.rejects(app.write(() => {
    if (++runs > 1) throw new Error('it ran again')
    Date.now = () => now() + 120_000 // as long as a driver repeats it
    throw code(112, 'TransientTransactionError')
  }), NotWrittenError)
})

// failing is a client whose collections fail by an error.
function failing (err) {
  const fail = async () => { throw err }
  const session = { withTransaction: fn => fn() }
  return {
    db: () => ({ collection: () => ({ insertOne: fail, findOneAndUpdate: fail, updateMany: fail, insertMany: fail, bulkWrite: fail }) }),
    withSession: fn => fn(session)
  }
}

const at2 = at('v2', 2)
const one = c => c.insertOne({})
const many = c => c.updateMany({}, {})
const both = [{ insertOne: {} }, { updateMany: {} }]

// [what, error, runs when the data moves, error when it does; error when it does not, undefined: the same; how]
for (const [what, err, runs, goes, stays, how = one] of [
  ['a validator', code(121), 2],
  ['a view', code(166), 2],
  ['an identity', code(361), 2],
  ['a write block', code(371), 2],
  ['a validator, looking for the document', code(121), 2, undefined, undefined, c => c.findOneAndUpdate({}, {})],
  ['a validator, of many', code(121), 1, UnknownOutcomeError, undefined, many],
  ['a view, of many', code(166), 1, UnknownOutcomeError, undefined, many],
  ['a write block, of many', code(371), 1, UnknownOutcomeError, undefined, many],
  ['a validator, in a place that is not known', code(121), 1, UnknownOutcomeError, undefined, () => { throw code(121) }],
  ['a validator, of many in a transaction', code(121), 2, undefined, undefined, 'transaction'],
  ['something that is not there', new MovedError(), 2],
  ['a bulk write that did nothing', bulk(), 2, undefined, undefined, c => c.bulkWrite([{ insertOne: {} }])],
  ['many inserts of which none was done', bulk(), 2, undefined, undefined, c => c.insertMany([{}, {}])],
  ['a bulk write that did a part', bulk({ insertedCount: 2 }), 1, UnknownOutcomeError, UnknownOutcomeError, c => c.bulkWrite([{ insertOne: {} }])],
  ['a bulk write with an update of many', bulk(), 1, UnknownOutcomeError, UnknownOutcomeError, c => c.bulkWrite(both)],
  ['a commit of unknown outcome', code(166, 'UnknownTransactionCommitResult'), 1, UnknownOutcomeError, UnknownOutcomeError],
  ['a broken connection', new MongoNetworkError('gone'), 1, UnknownOutcomeError, UnknownOutcomeError],
  ['a kill in the middle', code(175), 1, UnknownOutcomeError, UnknownOutcomeError],
  ['a majority that did not answer', code(64), 1, UnknownOutcomeError, UnknownOutcomeError],
  ['a duplicate key', code(11000), 1]
]) {
  test(`a write that fails by ${what}`, async t => {
    for (const moves of [true, false]) {
      const { d, app } = await opened(t, new Deployment(), { mongo: failing(err) })
      const versions = []
      const fn = at => {
        versions.push(at.version)
        if (at.version !== 'v1') return at.version
        if (moves) d.set(at2)
        return how === 'transaction' ? many(at.collection('orders')) : how(at.collection('orders'))
      }
      const write = how === 'transaction' ? app.transaction(fn) : app.write(fn)
      if (moves && runs === 2) {
        assert.equal(await write, 'v2')
      } else {
        const want = moves ? goes : stays
        await assert.rejects(write, e => want ? e instanceof want && e.cause.message === err.message : e.message === err.message)
      }
      assert.equal(versions.length, moves ? runs : 1)
    }
  })
}

// answering is a client whose collections answer in turn; an error is thrown.
function answering (...answers) {
  const answer = async () => {
    const next = answers.shift()
    if (next instanceof Error) throw next
    return next
  }
  const cursor = { addStage () { return this }, out ($out) { return this.addStage({ $out }) }, toArray: answer }
  const methods = ['insertOne', 'updateOne', 'findOneAndUpdate', 'insertMany', 'bulkWrite', 'updateMany', 'deleteMany', 'findOne']
  const session = { withTransaction: fn => fn() }
  return {
    db: () => ({ collection: () => ({ aggregate: () => ({ ...cursor }), ...Object.fromEntries(methods.map(m => [m, answer])) }) }),
    withSession: fn => fn(session)
  }
}

const inserted = { acknowledged: true, insertedId: 1 }
const updated = { acknowledged: true, matchedCount: 1, modifiedCount: 1, upsertedCount: 0, upsertedId: null }
const updatedNone = { acknowledged: true, matchedCount: 0, modifiedCount: 0, upsertedCount: 0, upsertedId: null }
const deleted = { acknowledged: true, deletedCount: 1 }
const another = c => c.updateOne({}, {})
const handled = how => c => how(c).then(() => assert.fail('it should have failed'), () => {})

// [what, the operations, their answers, is it run again when the data has moved, is it of unknown outcome also when not]
for (const [what, operations, answers, again = false, unknown = false] of [
  ['one', [one], [code(166)], true],
  ['one, then one', [one, another], [inserted, code(166)]],
  ['one of many inserts, then one', [c => c.insertMany([{}]), another], [{ acknowledged: true, insertedCount: 1 }, code(166)]],
  ['one that was found, then one', [c => c.findOneAndUpdate({}, {}), one], [{ _id: 1 }, code(166)]],
  ['one that may have been, then one', [handled(one), another], [new MongoNetworkError('gone'), code(166)]],
  ['one, not acknowledged, then one', [another, one], [{ ...updatedNone, acknowledged: false }, code(166)]],
  ['one, then a bulk write', [one, c => c.bulkWrite([{ insertOne: {} }])], [inserted, bulk()], false, true],
  ['one, then something missing', [one, () => { throw new MovedError() }], [inserted]],
  ['one, then a transaction that was ended', [one, another], [inserted, code(251, 'TransientTransactionError')], false, true],
  ['one that found nothing, then one', [another, one], [updatedNone, code(166)], true],
  ['one that was not there, then one', [c => c.findOneAndUpdate({}, {}), one], [null, code(166)], true],
  ['one that was not there and was inserted, then one', [c => c.findOneAndUpdate({}, {}, { upsert: true }), one], [null, code(166)]],
  ['one that was there already, then one', [handled(one), another], [code(11000), code(166)], true],
  ['one refused, then one', [handled(one), another], [code(166), code(166)], true],
  ['one refused, then many torn', [handled(one), many], [code(121), code(121)]],
  ['one refused, then many deleted in part', [handled(one), c => c.deleteMany({})], [code(371), code(371)]],
  ['many torn, then one refused', [handled(many), one], [code(166), code(166)]],
  ['many, then one', [many, one], [updated, code(166)]],
  ['many deleted, then one', [c => c.deleteMany({}), one], [deleted, code(166)]],
  ['many that found nothing, then one', [many, one], [updatedNone, code(166)], true],
  ['reads, then one', [c => c.findOne({}), c => c.aggregate([{ $match: {} }]).toArray(), one], [null, [], code(166)], true],
  ['a merge, then one', [c => c.aggregate([{ $match: {} }, { $merge: 'other' }]).toArray(), one], [[], code(166)]],
  ['an $out that is added, then one', [c => c.aggregate([]).out('other').toArray(), one], [[], code(166)]],
  ['two at once, of which one does not end', [c => Promise.all([another(c), one(c)])], [new Promise(() => {}), code(166)]],
  ['a transaction of two', 'transaction', [inserted, code(166)], true]
]) {
  test(`a write of several operations: ${what}`, async t => {
    for (const moves of [true, false]) {
      const { d, app } = await opened(t, new Deployment(), { mongo: answering(...answers) })
      const versions = []
      const fn = async at => {
        versions.push(at.version)
        if (at.version !== 'v1') return at.version
        if (moves) d.set(at2)
        const collection = at.collection('orders')
        for (const operation of operations === 'transaction' ? [one, another] : operations) await operation(collection)
      }
      const write = operations === 'transaction' ? app.transaction(fn) : app.write(fn)
      if (moves && again) {
        assert.equal(await write, 'v2')
      } else {
        await assert.rejects(write, e => e instanceof UnknownOutcomeError === (moves || unknown) && !(e instanceof NotWrittenError))
      }
      assert.deepEqual(versions, moves && again ? ['v1', 'v2'] : ['v1'])
    }
  })
}

test('a transaction that was ended is run again, without any news', async t => {
  const { app } = await opened(t)
  let runs = 0
  await app.write(() => { if (++runs < 3) throw code(251, 'TransientTransactionError') })
  assert.equal(runs, 3)
})

test('a read of a version that was completed is made where the data is', async t => {
  const { d, app } = await opened(t)
  const read = () => app.read(({ version }) => {
    if (version === 'v1') throw code(241)
    return version
  })
  await assert.rejects(read(), /code 241/)
  d.set(at('v2', 2))
  assert.equal(await read(), 'v2')
})

test('another cluster needs another client', async t => {
  const elsewhere = { ...at('v1@b', 2), cluster: 'two', hosts: 'db2:27017' }
  const { d, app } = await opened(t)
  d.set(elsewhere)
  await eventually('the news', () => app.revision === 2)
  await assert.rejects(seen(app), /another cluster \(db2:27017\): give a function/)

  const asked = []
  const other = await opened(t, new Deployment(), { mongo: where => { asked.push(where.cluster); return mongo } })
  await seen(other.app)
  other.d.set(elsewhere)
  await eventually('the news', () => other.app.revision === 2)
  await Promise.all([seen(other.app), seen(other.app)])
  assert.deepEqual(asked, ['one', 'two'])
})

test('a kind that the version does not have', async t => {
  const { app } = await opened(t)
  await assert.rejects(app.read(at => at.collection('customers')), /^Error: version v1 has no kind "customers", only orders$/)
})
