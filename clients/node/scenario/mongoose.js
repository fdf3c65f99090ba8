// A Mongoose application in both of its versions: one of the processes of
// integration.TestMongooseApplication. It tells what it does as application.js does. Without
// controllers it is the application as it was before: it has models of v1 with autoCreate and
// autoIndex, and fills its collections.
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import mongoose from 'mongoose'
import { MovedError, UnknownOutcomeError } from '../index.js'
import { change, place, read } from '../mongoose/calls.js'
import { close, models, open } from '../mongoose/shop.js'

const { controllers, uri, database, name } = JSON.parse(process.env.APPLICATION)
const tell = line => process.stdout.write(JSON.stringify(line) + '\n')
let ended = false
process.once('SIGTERM', () => { ended = true })
const lines = []
let ordered = () => {}
createInterface({ input: process.stdin }).on('line', line => { lines.push(line); ordered() })
const order = async () => {
  while (lines.length === 0) await new Promise(resolve => { ordered = resolve })
  return lines.shift()
}
const ObjectId = mongoose.Types.ObjectId

const customerOf = (version, id, n) => version === 'v1'
  ? { _id: id, name: `customer ${id}`, mail: `${id}@example.com`, address: { street: `street ${n}`, city: `city ${n}` }, n }
  : { _id: id, name: `customer ${id}`, email: `${id}@example.com`, address: { street: `street ${n}` }, city: `city ${n}`, n }
const orderOf = (version, id, customer, n) => {
  const first = new ObjectId()
  const items = version === 'v1' ? { lines: [{ _id: first, sku: `sku ${n}`, count: n % 7 }, { sku: 'more', count: 1 }] } : { items: [{ _id: first, sku: `sku ${n}`, quantity: n % 7 }, { sku: 'more', quantity: 1 }] }
  return { _id: id, customer, n, first: String(first), ...items }
}

if (!controllers) {
  await mongoose.connect(uri, { dbName: database, autoCreate: true, autoIndex: true })
  const Customer = mongoose.model('customers', new mongoose.Schema({ name: String, mail: { type: String, unique: true }, address: { street: String, city: String }, n: Number }, { timestamps: true }), 'customers')
  const Order = mongoose.model('orders', new mongoose.Schema({ customer: mongoose.Schema.Types.ObjectId, lines: [{ sku: String, count: Number }], n: Number, first: String }, { timestamps: true }), 'orders')
  await Promise.all([Customer.init(), Order.init()])
  for (let i = 0; i < 30; i++) {
    const [id, of] = [new ObjectId(), new ObjectId()]
    for (const key of [`customers/${id}`, `orders/${of}`]) tell({ begin: key, state: 'operation 0' })
    await Customer.create(customerOf('v1', id, 0))
    await Order.create(orderOf('v1', of, id, 0))
    for (const key of [`customers/${id}`, `orders/${of}`]) tell({ ack: key, version: 'v1' })
  }
  await mongoose.disconnect()
  process.exit(0)
}

const app = await open(uri, controllers, name)
let stands = false // within the next write

async function wrote (keys, state, run) {
  for (const key of keys) tell({ begin: key, state })
  let version
  let runs = 0
  try {
    await run(async at => {
      version = at.version
      if (++runs > 1) return tell({ retry: version })
      if (!stands) return
      stands = false
      tell({ asleep: true })
      await order()
    })
    for (const key of keys) tell({ ack: key, version })
    return true
  } catch (err) {
    for (const key of keys) tell({ unknown: key })
    if (!(err instanceof UnknownOutcomeError)) tell({ fail: `${keys}: ${err.stack}` })
    return false
  }
}

// through is the application for one call, with to before what the call does.
const through = to => ({
  write: run => app.write(async at => { await to(at); return run(at) }),
  transaction: run => app.transaction(async (at, session) => { await to(at); return run(at, session) }),
  read: run => app.read(at => { to(at); return run(at) })
})

const live = [] // {id, orders}
for (let n = 1; !ended; n++) {
  const state = `operation ${n}`
  let dice = live.length < 3 ? 0 : Math.floor(Math.random() * 10)
  if (live.length > 0 && lines.length > 0) {
    dice = await order() === 'update' ? 5 : 3
    stands = true
  }
  const one = live[Math.floor(Math.random() * live.length)]
  const gone = () => live.splice(live.indexOf(one), 1)
  if (dice < 2) {
    const id = new ObjectId()
    if (await wrote([`customers/${id}`], state, to => app.write(async at => {
      await to(at)
      await models(at).customers.create(customerOf(at.version, id, n))
    }))) live.push({ id, orders: [] })
  } else if (dice === 2 && one.orders.length === 0) {
    gone()
    await wrote([`customers/${one.id}`], '', to => app.write(async at => {
      await to(at)
      const { deletedCount } = await models(at).customers.deleteOne({ _id: one.id })
      if (deletedCount === 0) throw new MovedError()
    }))
  } else if (dice < 5) {
    const id = new ObjectId()
    if (await wrote([`customers/${one.id}`, `orders/${id}`], state, to =>
      place(through(to), one.id, version => customerOf(version, one.id, n), version => orderOf(version, id, one.id, n)))) one.orders.push(id)
    else gone()
  } else if (dice < 8 || one.orders.length === 0) {
    if (!await wrote([`customers/${one.id}`], state, to => change(through(to), one.id, version => customerOf(version, one.id, n)))) gone()
  } else {
    try {
      let version
      const doc = await read(through(at => { version = at.version }), one.orders.at(-1))
      tell({ read: `customers/${one.id}`, state: doc?.customer ? `operation ${doc.customer.n}` : '', version })
    } catch (err) {
      tell({ fail: `read of ${one.id}: ${err.stack}` })
    }
  }
  await sleep(40)
}
await close(app)
process.stdin.destroy()
