import test from 'node:test'
import assert from 'node:assert/strict'
import { NotWrittenError, connect } from '../index.js'
import { Deployment, at, controller, eventually, hold } from './controller.js'

const ours = '0123456789abcdef0123456789abcdef'
const other = 'fedcba9876543210fedcba9876543210'

const identified = (version, revision) => {
  const location = at(version, revision)
  location.kinds[0].id = ours
  return location
}

const collection = uuid => ({ type: 'collection', info: { uuid: Buffer.from(uuid, 'hex') } })
const view = { type: 'view', info: { readOnly: true } }

// A client whose server gives these answers about collections, one after the other, and then none.
const answering = (...answers) => ({
  db: () => ({
    listCollections: () => ({
      toArray: async () => {
        if (answers.length === 0) throw new Error('it is asked once more')
        return [answers.shift()].filter(Boolean)
      }
    }),
    collection: () => ({})
  })
})

async function opened (t, location, mongo) {
  const d = new Deployment()
  d.set(location)
  const app = await connect({ controllers: [(await controller(t, d)).address], application: 'orders', mongo })
  t.after(() => app.close().catch(() => {}))
  return { d, app }
}

test('a client that does not reach the collection is refused', async t => {
  for (const answer of [null, collection(other), view]) {
    const { app } = await opened(t, identified('v2', 1), answering(answer, answer))
    const runs = []
    const want = new RegExp(`the data of v2 is in the cluster at db1:27017, and mongo finds no collection dbc_v2.orders with UUID ${ours}: connect it to that cluster`)
    await assert.rejects(app.write(({ version }) => runs.push(version)), err => err instanceof NotWrittenError && want.test(err.message))
    await assert.rejects(app.read(({ version }) => runs.push(version)), want)
    assert.deepEqual(runs, [])
  }
})

test('a cluster is recognized once, and by one identity', async t => {
  const location = identified('v1', 1)
  location.kinds.unshift({ kind: 'new', database: 'dbc_v1', collection: 'new', id: '' }, { kind: 'replaced', database: 'dbc_v1', collection: 'replaced', id: ours })
  const { app } = await opened(t, location, answering(collection(other), collection(ours)))
  assert.equal(await app.write(({ version }) => version), 'v1')
  assert.equal(await app.write(({ version }) => version), 'v1') // it would find no answer
})

test('data that moves while a client looks is no other cluster', async t => {
  const client = answering(view, collection(ours))
  const { d, app } = await opened(t, identified('v1', 1), () => {
    d.set(identified('v2', 2))
    return client
  })
  assert.equal(await app.write(({ version }) => version), 'v2')
})

test('a first read during a switch goes on behind the fence', async t => {
  const { d, app } = await opened(t, identified('v1', 1), answering(view))
  d.set(hold('v1', 2, 1))
  await eventually('the acknowledgement', () => d.acks.length === 1)
  assert.equal(await app.read(({ version }) => version), 'v1')
})
