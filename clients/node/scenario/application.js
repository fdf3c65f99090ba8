// An application with users and orders, in both of its versions: one of the processes that the
// test of whole switches (integration.TestApplicationsBehindViews) starts, sends to sleep and kills. It
// tells what it does on standard output, a line of JSON each, before and after each write. On
// standard input it is told to stand still within its next update or transaction, until the next line.
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient, ObjectId } from 'mongodb'
import { MovedError, UnknownOutcomeError, connect } from '../index.js'

const { controllers, uri, elsewhere, database, name, keep } = JSON.parse(process.env.APPLICATION)

const tell = line => process.stdout.write(JSON.stringify(line) + '\n') // a pipe: it is written when this returns
let ended = false
process.once('SIGTERM', () => { ended = true })
const told = [] // lines that were not followed yet
let ordered = () => {}
createInterface({ input: process.stdin }).on('line', line => { told.push(line); ordered() })
const order = async () => {
  while (told.length === 0) await new Promise(resolve => { ordered = resolve })
  return told.shift()
}

// How documents are in each version; n is the operation that wrote them last.
const users = {
  v1: { key: id => id, doc: (id, n) => ({ _id: id, name: `user ${id}`, mail: `${id}@example.com`, address: { street: `street ${n}`, city: `city ${n}` }, n }), set: n => ({ n, 'address.street': `street ${n}`, 'address.city': `city ${n}` }) },
  v2: { key: id => `users/${id}`, doc: (id, n) => ({ _id: `users/${id}`, name: `user ${id}`, email: `${id}@example.com`, address: { street: `street ${n}` }, city: `city ${n}`, n }), set: n => ({ n, 'address.street': `street ${n}`, city: `city ${n}` }) }
}
const orders = {
  v1: { doc: (id, user, n) => ({ _id: id, userId: user, lines: [{ sku: `sku ${n}`, count: n % 7 }], n }) },
  v2: { doc: (id, user, n) => ({ _id: id, userId: `users/${user}`, items: [{ sku: `sku ${n}`, quantity: n % 7 }], n }) }
}

const mongo = new MongoClient(uri, { appName: name, writeConcern: { w: 'majority' } })
// One that does not cooperate knows the old names, and nobody else.
const alone = { version: 'v1', client: mongo, collection: kind => mongo.db(database).collection(kind) }
const clients = [mongo]
const clientAt = ({ version }) => {
  if (!elsewhere[version]) return mongo
  clients.push(new MongoClient(elsewhere[version], { appName: name, writeConcern: { w: 'majority' } }))
  return clients.at(-1)
}
const app = controllers
  ? await connect({ controllers, application: name, mongo: elsewhere ? clientAt : mongo, patience: 180_000, log: line => console.error(line) })
  : null
const write = fn => app ? app.write(fn) : fn(alone)
const read = fn => app ? app.read(fn) : fn(alone)
const transaction = fn => app ? app.transaction(fn) : mongo.withSession(s => s.withTransaction(() => fn(alone, s)))

// wrote makes a write of some records and tells what became of it.
async function wrote (keys, state, make) {
  for (const key of keys) tell({ begin: key, state })
  let version
  let runs = 0
  try {
    await make(async at => {
      version = at.version
      if (++runs > 1) return tell({ retry: version })
      if (!stands) return
      stands = false
      tell({ asleep: true })
      await order()
    })
    for (const key of keys) tell({ ack: key, version })
    return 'acked'
  } catch (err) {
    if (!app && [121, 166, 371].includes(err.code)) {
      for (const key of keys) tell({ refused: key })
      return 'refused'
    }
    for (const key of keys) tell({ unknown: key })
    if (!(err instanceof UnknownOutcomeError)) tell({ fail: `${keys}: ${err.stack}` })
    return 'unknown'
  }
}

let stands = false // within the next write
const found = res => { if (res.matchedCount === 0 || res.deletedCount === 0) throw new MovedError() }

const live = []
for (let n = 1; !ended; n++) {
  const state = `operation ${n}`
  const i = Math.floor(Math.random() * live.length)
  let dice = live.length < 3 ? 0 : Math.floor(Math.random() * 10)
  if (keep && dice === 2) dice = 7
  if (live.length > 0 && told.length > 0) {
    dice = await order() === 'update' ? 5 : 4
    stands = true
  }
  if (dice < 2) {
    const id = new ObjectId()
    const became = await wrote([`users/${id}`], state, to => write(async at => {
      await to(at)
      return at.collection('users').insertOne(users[at.version].doc(id, n))
    }))
    if (became === 'acked') live.push(id)
  } else if (dice < 8) {
    // One whose state is not known is not touched again.
    const [id] = live.splice(i, 1)
    const order = new ObjectId()
    let became
    if (dice < 3) {
      became = await wrote([`users/${id}`], '', to => write(async at => {
        await to(at)
        found(await at.collection('users').deleteOne({ _id: users[at.version].key(id) }))
      }))
      if (became === 'acked') became = 'deleted'
    } else if (dice < 5) {
      became = await wrote([`users/${id}`, `orders/${order}`], state, to => transaction(async (at, session) => {
        await to(at)
        found(await at.collection('users').updateOne({ _id: users[at.version].key(id) }, { $set: users[at.version].set(n) }, { session }))
        await at.collection('orders').insertOne(orders[at.version].doc(order, id, n), { session })
      }))
    } else {
      became = await wrote([`users/${id}`], state, to => write(async at => {
        await to(at)
        found(await at.collection('users').updateOne({ _id: users[at.version].key(id) }, { $set: users[at.version].set(n) }))
      }))
    }
    if (became === 'acked' || became === 'refused') live.push(id)
  } else {
    const id = live[i]
    try {
      let version
      const doc = await read(at => {
        version = at.version
        return at.collection('users').findOne({ _id: users[version].key(id) })
      })
      tell({ read: `users/${id}`, state: doc ? `operation ${doc.n}` : '', version })
    } catch (err) {
      if (!app && err.code === 241) tell({ gone: err.code })
      else tell({ fail: `read users/${id}: ${err.stack}` })
    }
  }
  await sleep(40)
}
await app?.close()
await Promise.all(clients.map(c => c.close()))
process.stdin.destroy()
