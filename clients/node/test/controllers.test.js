import test from 'node:test'
import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { chmod, chown, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { rootCertificates } from 'node:tls'
import { MongoServerError } from 'mongodb'
import { NotWrittenError, connect } from '../index.js'
import { Controllers } from '../lib/controllers.js'
import { Deployment, at, controller, hold, eventually, mongo } from './controller.js'

const options = (...controllers) => ({ controllers: controllers.map(c => c.address ?? c), application: 'orders', mongo })
const nobody = '127.0.0.1:1' // a port that nothing listens on

test('it follows at another controller', async t => {
  const d = new Deployment()
  const [first, second] = [await controller(t, d), await controller(t, d)]
  const app = await connect(options(first, second))
  t.after(() => app.close().catch(() => {}))
  first.end()
  d.set(hold('v1', 2, 1))
  await eventually('the acknowledgement', () => d.acks.length > 0) // maybe by both calls that wait
  d.set(at('v2', 3))
  assert.equal(await app.write(({ version }) => version), 'v2')
})

test('a controller that stands still hides neither a hold nor its end', async t => {
  const d = new Deployment()
  const all = [await controller(t, d), await controller(t, d), await controller(t, d)]
  const app = await connect(options(...all))
  t.after(() => { all[0].state.stands = false; return app.close().catch(() => {}) })
  await eventually('its call for news', () => all[0].seen.some(s => s.method === 'GetLocation'))
  all[0].state.stands = true
  d.set(hold('v1', 2, 1))
  await eventually('the acknowledgement', () => d.acks.length > 0)
  d.set(at('v2', 3))
  assert.equal(await app.write(({ version }) => version), 'v2')
  assert.equal(all[0].state.gaveUp, 0, 'calls that it gave up before it knew')
  const ids = all.map(c => c.seen.filter(s => s.method === 'GetLocation' && s.clientId).length > 0)
  assert.deepEqual(ids, [true, false, false], 'controllers that have its id in a call for news')
  assert.equal(d.registered.size, 1)
})

// A function mongo that never settles.
const standing = () => {
  const standing = () => { standing.calls++; return new Promise(() => {}) }
  standing.calls = 0
  return standing
}

test('it holds while the memory is written, and close does not wait for that', async t => {
  const d = new Deployment()
  d.set(hold('v1', 1, 1)) // nothing to remember yet: connect returns at once
  const mongo = standing()
  const app = await connect({ ...options(await controller(t, d)), mongo, memory: join(tmpdir(), 'never-written') })
  await eventually('the first acknowledgement', () => d.acks.length === 1)
  d.set(at('v1', 2))
  await eventually('the memory', () => mongo.calls === 1)
  d.set(hold('v1', 3, 2))
  await eventually('the second acknowledgement', () => d.acks.at(-1) === 2)
  await app.close()
  assert.equal(d.registered.size, 0)
  assert.equal(mongo.calls, 1)
})

test('it holds while a write opens a client, and close does not wait for that', async t => {
  const d = new Deployment()
  const mongo = standing()
  const app = await connect({ ...options(await controller(t, d)), mongo })
  app.write(() => assert.fail('it is run')).catch(() => {})
  await eventually('the function', () => mongo.calls === 1)
  d.set(hold('v1', 2, 1))
  await eventually('the acknowledgement', () => d.acks.length === 1)
  await app.close()
  assert.equal(d.registered.size, 0)
})

test('a write that began before close is done', async t => {
  const d = new Deployment()
  const app = await connect({ ...options(await controller(t, d)), mongo: async () => mongo })
  const wrote = app.write(({ version }) => version)
  await app.close()
  assert.equal(await wrote, 'v1')
})

test('a refused write asks all controllers, though the first stands still', async t => {
  const d = new Deployment()
  const still = await controller(t, d, { silent: true })
  let both = false // are asked at once
  const other = await controller(t, d, { ready: () => { both ||= still.unanswered.has('GetLocation'); return both } })
  const app = await connect(options(still, other))
  t.after(() => app.close().catch(() => {}))
  const version = await app.write(({ version, collection }) => {
    if (version === 'v2') return version
    d.location = at('v2', 2) // without waking who waits for it: the refusal is the first to ask
    return collection('orders').insertOne(new MongoServerError({ code: 361, message: 'wrong collection' }))
  })
  assert.equal(version, 'v2')
  assert.ok(both)
})

test('a clock that was set back delays no renewal', async t => {
  const d = new Deployment()
  const c = await controller(t, d)
  const app = await connect(options(c))
  const now = Date.now
  t.after(() => { Date.now = now; return app.close().catch(() => {}) })
  const renewals = () => c.seen.filter(s => s.method === 'RegisterClient').length
  Date.now = () => now() - 3_600_000
  d.set(at('v1', 2)) // ends the poll
  await eventually('the second renewal', () => renewals() >= 2)
})

test('authorities may be several', () => {
  const options = { controllers: [nobody], ca: [rootCertificates[0], Buffer.from(rootCertificates[1])] }
  new Controllers(options).close()
  assert.throws(() => new Controllers({ ...options, ca: [rootCertificates[0], '-----BEGIN CERTIFICATE-----'] }))
})

test('certificates in files are read again', async t => {
  const dir = await mkdtemp(join(tmpdir(), 'dbcontroller-client-'))
  t.after(() => rm(dir, { recursive: true }))
  const caFile = join(dir, 'ca')
  await writeFile(caFile, rootCertificates[0], { mode: 0o644 })
  const lines = []
  const controllers = new Controllers({ controllers: [nobody], caFile, log: line => lines.push(line) })
  t.after(() => controllers.close())
  const [c] = controllers.all
  const used = () => { // by a call
    return c.call('GetLocation', {}).then(() => assert.fail('nobody answers'), () => c.agent)
  }
  const first = await used()
  assert.equal(await used(), first)
  await writeFile(caFile, rootCertificates[1])
  const second = await used()
  assert.notEqual(second, first)
  await writeFile(caFile, '-----BEGIN CERTIFICATE-----')
  assert.equal(await used(), second)
  await rm(caFile)
  assert.equal(await used(), second)
  assert.equal(lines.length, 2, lines.join())
  await writeFile(caFile, rootCertificates[0], { mode: 0o644 })
  const third = await used()
  assert.notEqual(third, second)
  // Authorities that others can write decide nothing.
  await writeFile(caFile, rootCertificates[1])
  await chmod(caFile, 0o620)
  assert.equal(await used(), third)
  assert.match(lines.at(-1), /ca can be written by others than its owner: chmod go-w it/)
})

test('a key that others can read or write', async t => {
  const dir = await mkdtemp(join(tmpdir(), 'dbcontroller-client-'))
  t.after(() => rm(dir, { recursive: true }))
  const [caFile, keyFile] = [join(dir, 'ca'), join(dir, 'key')]
  await writeFile(caFile, rootCertificates[0], { mode: 0o644 })
  await writeFile(keyFile, generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ type: 'pkcs8', format: 'pem' }))
  const open = () => {
    const lines = []
    new Controllers({ controllers: [nobody, '127.0.0.1:2'], caFile, keyFile, log: line => lines.push(line) }).close()
    return lines.join()
  }
  for (const [mode, says] of [[0o600, ''], [0o644, `everybody on this machine can read ${keyFile}, which has a key: chmod o-r it`]]) {
    await chmod(keyFile, mode)
    assert.equal(open(), says)
  }
  await chmod(keyFile, 0o622)
  assert.throws(open, /key can be written by others than its owner: chmod go-w it/)
  await chmod(keyFile, 0o600)
  await chmod(caFile, 0o664)
  assert.throws(open, /ca can be written by others than its owner: chmod go-w it/)
})

test('close deregisters', async t => {
  const d = new Deployment()
  const [first, second] = [await controller(t, d), await controller(t, d)]
  const app = await connect(options(first, second))
  assert.equal(d.registered.size, 1)
  first.end()
  await app.close()
  assert.equal(d.registered.size, 0)
  await app.close()
  await assert.rejects(app.write(() => 1), NotWrittenError)
  await assert.rejects(app.read(() => 1), /was closed/)
})

test('no controller at the start, and nothing remembered', async () => {
  await assert.rejects(connect({ ...options(nobody), startTimeout: 50 }), /no controller can be reached \(127\.0\.0\.1:1: .*, and nothing is remembered/)
})

test('no controller at the start, and something remembered', async t => {
  const dir = await mkdtemp(join(tmpdir(), 'dbcontroller-client-'))
  t.after(() => rm(dir, { recursive: true }))
  const file = join(dir, 'memory')
  let type = 'collection'
  let uuid = 'aa'
  const listed = {
    db: database => ({
      ...mongo.db(database),
      listCollections: () => ({ toArray: async () => [{ type, info: { uuid: Buffer.from(uuid, 'hex') } }] })
    })
  }
  const d = new Deployment()
  const c = await controller(t, d)
  const remembering = { ...options(c, nobody), mongo: listed, memory: file, startTimeout: 50 }
  await (await connect(remembering)).close()
  c.end()

  const alone = await connect({ ...remembering, controllers: [nobody] })
  assert.equal(await alone.write(({ version }) => version), 'v1')
  const refusal = new MongoServerError({ code: 166, message: 'a view' })
  await assert.rejects(alone.write(at => at.collection('orders').insertOne(refusal), { patience: 50 }), e => e instanceof NotWrittenError && e.cause === refusal)
  await alone.close()

  for (const moved of [() => { type = 'view' }, () => { type = 'collection'; uuid = 'bb' }]) {
    moved()
    await assert.rejects(connect({ ...remembering, controllers: [nobody] }), /the data is not where it was: a controller has to be reached/)
  }
  uuid = 'aa'
  await assert.rejects(connect({ ...remembering, controllers: [nobody], deployment: 'other' }), /another deployment/)
  await chmod(file, 0o620)
  await assert.rejects(connect({ ...remembering, controllers: [nobody] }), /memory can be written by others than its owner: chmod go-w it/)
  await chmod(file, 0o600)
  if (process.geteuid() === 0) {
    await chown(file, 12345, 12345)
    await assert.rejects(connect({ ...remembering, controllers: [nobody] }), /memory belongs to another user: remove it/)
    await chown(file, 0, 0)
  }
  await writeFile(file, 'null')
  await assert.rejects(connect({ ...remembering, controllers: [nobody] }), /is no memory of an application: remove it/)
  await writeFile(file, (await readFile(file, 'utf8')).slice(0, 2))
  await assert.rejects(connect({ ...remembering, controllers: [nobody] }), /remember where the data is/)
})

test('what no controller will answer otherwise is an error at once', async t => {
  const refuses = await controller(t, new Deployment(), { status: { code: 401, body: { code: 'unauthenticated', message: 'who is it?' } } })
  await assert.rejects(connect(options(refuses)), /who is it\?/)
})

test('one refusal ends no start', async t => {
  const d = new Deployment()
  const refusing = (code, status = 401) => controller(t, new Deployment(), { status: { code: status, body: { code, message: 'refused' } } })
  const late = await controller(t, d, { status: { code: 503, body: { code: 'unavailable', message: 'stopping' } }, times: 2 })
  for (const others of [
    [await refusing('unauthenticated'), await refusing('permission_denied', 403), await controller(t, d)],
    [await refusing('invalid_argument', 400), late]
  ]) {
    await (await connect({ ...options(...others), startTimeout: 3_600_000 })).close()
  }
  const all = [nobody, await refusing('permission_denied', 403), await refusing('unauthenticated')]
  await assert.rejects(connect({ ...options(...all), startTimeout: 3_600_000 }), e => /refused.*refused/.test(e.message) && e.code === 'unauthenticated')
})

test('answers that are no objects are errors', async t => {
  for (const [code, body] of [[503, null], [500, 'x'], [200, null]]) {
    const c = await controller(t, new Deployment(), { status: { code, body } })
    await assert.rejects(connect({ ...options(c), startTimeout: 50 }), /no object: is it a controller/)
  }
})

test('a token in a file', async t => {
  const dir = await mkdtemp(join(tmpdir(), 'dbcontroller-client-'))
  t.after(() => rm(dir, { recursive: true }))
  const tokenFile = join(dir, 'token')
  await writeFile(tokenFile, 'let-me-in\n')
  const c = await controller(t, new Deployment())
  for (const [mode, warns] of [[0o600, 0], [0o644, 1]]) {
    await chmod(tokenFile, mode)
    const said = []
    await (await connect({ ...options(c), tokenFile, log: text => said.push(text) })).close()
    assert.equal(said.filter(text => /everybody on this machine can read .*token/.test(text)).length, warns)
  }
  assert.ok(c.seen.length > 0 && c.seen.every(s => s.authorization === 'Bearer let-me-in'))
  for (const mode of [0o666, 0o620]) {
    await chmod(tokenFile, mode)
    await assert.rejects(connect({ ...options(c), tokenFile, startTimeout: 50 }), /token can be written by others than its owner: chmod go-w it/)
  }
})

test('a token', async t => {
  const d = new Deployment()
  const c = await controller(t, d)
  const app = await connect({ ...options(c), token: 'let-me-in' })
  await app.close()
  assert.ok(c.seen.length > 0 && c.seen.every(s => s.authorization === 'Bearer let-me-in'))
  await assert.rejects(connect({ ...options('http://db.example.com:7090'), token: 'let-me-in' }),
    e => /a token would be readable/.test(e.message) && !e.message.includes('let-me-in'))
})

test('a configuration that is none', async () => {
  for (const [change, want] of [
    [{ controllers: [] }, /no controllers are given/],
    [{ application: '' }, /the application has no name/],
    [{ mongo: undefined }, /give mongo/],
    [{ ttl: 10 }, /ttl is 10/],
    [{ cert: 'x' }, /belong together/],
    [{ controllers: ['http://u:p@db/'] }, /is no address/],
    [{ controllers: ['http://db:1'], ca: 'x' }, /is without TLS/]
  ]) {
    await assert.rejects(connect({ ...options(nobody), ...change }), want)
  }
})
