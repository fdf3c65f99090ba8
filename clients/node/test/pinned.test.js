import test from 'node:test'
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { MongoServerError } from 'mongodb'
import { connect } from '../index.js'
import { Deployment, at, controller, eventually, hold, mongo } from './controller.js'

const code = n => new MongoServerError({ code: n, message: `code ${n}` })

async function opened (t, ...controllers) {
  const app = await connect({ controllers: controllers.map(c => c.address), application: 'orders', mongo })
  t.after(() => app.close().catch(() => {}))
  return app
}

test('controllers of another deployment are refused', async t => {
  const ours = new Deployment()
  const theirs = new Deployment()
  ours.set({ ...at('v1', 5), deployment: 'ours' })
  theirs.set({ ...at('v2', 900), deployment: 'theirs' })
  const [first, second] = [await controller(t, ours), await controller(t, theirs)]
  const app = await opened(t, first, second)
  first.end()
  await eventually('a question by name', () => second.seen.length > 0)
  assert.ok(second.seen.every(s => s.name === 'ours'))
  assert.equal(await app.write(({ version }) => version), 'v1')
  assert.equal(app.revision, 5)
})

test('controllers of another deployment than what is remembered', async t => {
  const theirs = new Deployment()
  theirs.set({ ...at('v2', 900), deployment: 'theirs' })
  theirs.answersAnyName = true
  const dir = await mkdtemp(join(tmpdir(), 'dbcontroller-client-'))
  t.after(() => rm(dir, { recursive: true }))
  const memory = join(dir, 'memory')
  await writeFile(memory, '{"format":1,"deployment":"ours"}', { mode: 0o600 })
  const c = await controller(t, theirs)
  await assert.rejects(connect({ controllers: [c.address], application: 'orders', mongo, memory, startTimeout: 3_600_000 }),
    /this is a controller of theirs, not of ours: correct controllers, or remove /)
})

test('the record was lost and recovered, and counts revisions anew', async t => {
  const d = new Deployment()
  d.set(at('v1', 900))
  const app = await opened(t, await controller(t, d))
  assert.equal(await app.write(({ version, collection }) => {
    if (version === 'v2') return version
    d.set({ ...at('v2', 3), epoch: '1' })
    return collection('orders').insertOne(code(166))
  }), 'v2')
})

test('a registration whose answer was lost is the same one', async t => {
  const d = new Deployment()
  d.loseAnswers = 2
  const app = await opened(t, await controller(t, d))
  assert.equal(d.registered.size, 1)
  await app.close()
  assert.equal(d.registered.size, 0)
})

test('a read that a rename ended waits for where it went', async t => {
  for (const n of [26, 43, 175]) {
    const d = new Deployment()
    const app = await opened(t, await controller(t, d))
    d.set(hold('v1', 2, 1))
    await eventually('the acknowledgement', () => d.acks.length === 1)
    const runs = []
    await app.read(({ version }) => {
      runs.push(version)
      if (version === 'v2') return
      if (runs.length === 3) d.set(at('v2', 3))
      throw code(n)
    })
    assert.deepEqual(runs, ['v1', 'v1', 'v1', 'v2'])
  }
})
