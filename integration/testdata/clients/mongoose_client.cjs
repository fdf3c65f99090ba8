// An application on Mongoose that knows nothing of dbcontroller. It builds its indexes at each start, and
// starts again now and then. See TestUnmodifiedClients for its steps.
const mongoose = require('mongoose')

const part = JSON.parse(process.env.CLIENT)
let ended = false
process.stdin.on('end', () => { ended = true }).resume()
const tell = line => process.stdout.write(JSON.stringify(line) + '\n')
const want = (what, got, wanted) => {
  if (got !== wanted) throw new Error(`${what}: got ${got}, want ${wanted}`)
}
const random = () => Math.floor(Math.random() * part.accounts)

const Account = new mongoose.Schema({ _id: mongoose.Mixed, n: Number, found: Number, money: Number, owner: String }, { versionKey: false })
Account.index({ owner: 1 }, { unique: true, sparse: true })
const Entry = new mongoose.Schema({ _id: String, n: Number, account: { type: mongoose.Mixed, ref: 'Account' } }, { collection: 'entries', versionKey: false })
Entry.index({ account: 1, n: -1 })
const Record = new mongoose.Schema({ _id: mongoose.Mixed, n: Number }, { collection: 'records', versionKey: false })
Record.index({ n: 1 })

async function connect () {
  const connection = await mongoose.createConnection(part.uri, { dbName: part.database, autoIndex: true, autoCreate: true }).asPromise()
  try {
    const models = [connection.model('Account', Account, 'accounts'), connection.model('Entry', Entry), connection.model('Record', Record)]
    for (const m of models) await m.init()
    return [connection, ...models]
  } catch (err) {
    await connection.close() // or it keeps this process alive at the end
    throw err
  }
}

async function scan (Record) {
  for (;;) {
    let sum = 0
    try {
      for await (const d of Record.find().batchSize(200).cursor()) sum += d.n
      return sum
    } catch (err) {
      // A lost router: the connection breaks, or another one does not know the cursor.
      if (!part.killed || !(err instanceof mongoose.mongo.MongoNetworkError || [6, 43].includes(err.code))) throw err
      tell({ again: 1 })
    }
  }
}

// again starts until it works. No driver repeats the making of collections and indexes at another router.
async function again (start) {
  for (;;) {
    try {
      return await start()
    } catch (err) {
      if (!part.killed || !(err instanceof mongoose.mongo.MongoNetworkError || err.code === 6)) throw err
    }
  }
}

// lost makes the driver run a transaction again if a statement of it found no router. The driver itself does so
// only if it had a connection before.
const lost = err => {
  if (part.killed && err instanceof mongoose.mongo.MongoNetworkError) err.addErrorLabel('TransientTransactionError')
  throw err
}

class Worker {
  constructor (number) { this.id = `${part.name}-${number}` }

  async step (n) {
    const key = `${this.id}-${n}`
    const [connection, Account, Entry, Record] = this.models
    this.doing = 'count'
    want('count', (await Account.updateOne({ _id: this.id }, { $inc: { n: 1 } })).modifiedCount, 1)
    this.doing = 'transaction'
    const transfer = async session => {
      await Account.updateOne({ _id: random() }, { $inc: { money: -1 } }, { session })
      const to = await Account.findById(random()).session(session)
      await Account.updateOne({ _id: to._id }, { $inc: { money: 1 } }, { session })
      await Entry.create([{ _id: key + '-t', n, account: this.id }], { session })
    }
    await connection.transaction(session => transfer(session).catch(lost))
    this.doing = 'bulk write'
    const ops = [0, 1, 2, 3, 4].map(i => ({ insertOne: { document: { _id: `${key}-b${i}`, n, account: this.id } } }))
    ops.push({ updateOne: { filter: { _id: this.id + '-tally' }, update: { $inc: { n: 1 } }, upsert: true } })
    want('bulk write', (await Entry.bulkWrite(ops, { ordered: n % 2 === 0 })).insertedCount, 5)
    this.doing = 'find and modify'
    want('find and modify', (await Account.findOneAndUpdate({ _id: this.id }, { $inc: { found: 1 } }, { returnDocument: 'after' })).found, n)
    this.doing = 'delete'
    want('delete', (await Entry.deleteOne({ _id: key + '-b0' })).deletedCount, 1)
    this.doing = 'bulk delete'
    want('bulk delete', (await Entry.bulkWrite(['-b1', '-b2'].map(s => ({ deleteOne: { filter: { _id: key + s } } })))).deletedCount, 2)
    this.doing = 'populate'
    const populated = await Entry.findById(key + '-t').populate('account')
    want('populate', populated?.account?.found, n)
    this.doing = 'save'
    populated.n = -n
    await populated.save()
    if (n % part.scan === 0) {
      this.doing = 'cursor'
      want('cursor', await scan(Record), part.records * (part.records - 1) / 2)
      this.doing = 'start again'
      await connection.close()
      this.models = await again(connect)
    }
  }

  async run () {
    let n = 0
    try {
      this.doing = 'start'
      this.models = await connect()
      await this.models[1].create({ _id: this.id, n: 0, found: 0, owner: this.id })
      while (!ended) {
        await this.step(n + 1)
        n++
        tell({ step: 1 })
      }
    } catch (err) {
      tell({ failed: `${this.id}, step ${n + 1}, ${this.doing}: ${err.stack} ${JSON.stringify(err)}` })
    }
    tell({ worker: this.id, steps: n })
    await this.models?.[0].close()
  }
}

Promise.all(Array.from({ length: part.workers }, (_, i) => new Worker(i).run()))
