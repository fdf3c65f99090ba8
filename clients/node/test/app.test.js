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

const code = (n, ...labels) => Object.assign(new MongoServerError({ code: n, message: `code ${n}`, errorLabels: labels }), {})
const bulk = inserted => new MongoBulkWriteError({ code: 166, message: 'bulk', writeErrors: [] }, { insertedCount: inserted })

// [what, error, runs when the data moves, error when it does not; undefined: the same]
for (const [what, err, moved, stays] of [
  ['a validator', code(121), 2],
  ['a view', code(166), 2],
  ['an identity', code(361), 2],
  ['a write block', code(371), 2],
  ['something that is not there', new MovedError(), 2],
  ['a bulk write that did nothing', bulk(0), 2],
  ['a bulk write that did a part', bulk(2), 1, UnknownOutcomeError],
  ['a commit of unknown outcome', code(166, 'UnknownTransactionCommitResult'), 1, UnknownOutcomeError],
  ['a broken connection', new MongoNetworkError('gone'), 1, UnknownOutcomeError],
  ['a kill in the middle', code(175), 1, UnknownOutcomeError],
  ['a majority that did not answer', code(64), 1, UnknownOutcomeError],
  ['a duplicate key', code(11000), 1]
]) {
  test(`a write that fails by ${what}`, async t => {
    for (const moves of [true, false]) {
      const { d, app } = await opened(t)
      const runs = []
      const write = app.write(({ version }) => {
        runs.push(version)
        if (version !== 'v1') return version
        if (moves) d.set(at('v2', 2))
        throw err
      })
      if (moves && moved === 2) {
        assert.equal(await write, 'v2')
      } else {
        await assert.rejects(write, e => stays ? e instanceof stays && e.cause === err : e === err)
      }
      assert.equal(runs.length, moves ? moved : 1)
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
