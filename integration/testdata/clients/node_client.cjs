// An application on the Node.js driver that knows nothing of dbcontroller. See TestUnmodifiedClients for its steps.
const { MongoClient, MongoNetworkError } = require('mongodb')
const { isDeepStrictEqual } = require('node:util')

const part = JSON.parse(process.env.CLIENT)
const shared = new MongoClient(part.uri)
let ended = false
process.stdin.on('end', () => { ended = true }).resume()
const tell = line => process.stdout.write(JSON.stringify(line) + '\n')
const want = (what, got, wanted) => {
  if (!isDeepStrictEqual(got, wanted)) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(wanted)}`)
}
const random = () => Math.floor(Math.random() * part.accounts)

// lost makes the driver run a transaction again if a statement of it found no router. The driver itself does so
// only if it had a connection before.
const lost = err => {
  if (part.killed && err instanceof MongoNetworkError) err.addErrorLabel('TransientTransactionError')
  throw err
}

class Worker {
  constructor (number) {
    this.id = `${part.name}-${number}`
    // Of the commands that a router's end breaks off, the driver repeats the first one of a client alone: it takes
    // the errors of the others for news of a connection that it has given up already.
    this.client = part.killed ? new MongoClient(part.uri) : shared
    const db = this.client.db(part.database);
    [this.accounts, this.entries, this.records] = ['accounts', 'entries', 'records'].map(name => db.collection(name))
  }

  async step (n) {
    const key = `${this.id}-${n}`
    const { client, accounts, entries } = this
    this.doing = 'count'
    want('count', (await accounts.updateOne({ _id: this.id }, { $inc: { n: 1 } })).modifiedCount, 1)
    this.doing = 'transaction'
    const transfer = async session => {
      await accounts.updateOne({ _id: random() }, { $inc: { money: -1 } }, { session })
      await accounts.updateOne({ _id: random() }, { $inc: { money: 1 } }, { session })
      await entries.insertOne({ _id: key + '-t', n }, { session })
    }
    await client.withSession(session => session.withTransaction(() => transfer(session).catch(lost)))
    this.doing = 'bulk write'
    const ops = [0, 1, 2, 3, 4].map(i => ({ insertOne: { document: { _id: `${key}-b${i}`, n } } }))
    ops.push({ updateOne: { filter: { _id: this.id + '-tally' }, update: { $inc: { n: 1 } }, upsert: true } })
    want('bulk write', (await entries.bulkWrite(ops, { ordered: n % 2 === 0 })).insertedCount, 5)
    this.doing = 'find and modify'
    const doc = await accounts.findOneAndUpdate({ _id: this.id }, { $inc: { found: 1 } }, { returnDocument: 'after' })
    want('find and modify', doc.found, n)
    this.doing = 'delete'
    want('delete', (await entries.deleteOne({ _id: key + '-b0' })).deletedCount, 1)
    this.doing = 'bulk delete'
    const deletes = ['-b1', '-b2'].map(suffix => ({ deleteOne: { filter: { _id: key + suffix } } }))
    want('bulk delete', (await entries.bulkWrite(deletes)).deletedCount, 2)
    this.doing = 'read'
    want('read', await entries.findOne({ _id: key + '-t' }), { _id: key + '-t', n })
    if (n % part.scan === 0) {
      this.doing = 'cursor'
      want('cursor', (await this.scan()).sort((a, b) => a - b), Array.from({ length: part.records }, (_, i) => i))
    }
  }

  async scan () {
    for (;;) {
      try {
        return (await this.records.find({}, { batchSize: 200 }).toArray()).map(d => d.n)
      } catch (err) {
        // A lost router: the connection breaks, or another one does not know the cursor.
        if (!part.killed || !(err instanceof MongoNetworkError || [6, 43].includes(err.code))) throw err
        tell({ again: 1 })
      }
    }
  }

  async run () {
    let n = 0
    try {
      await this.accounts.insertOne({ _id: this.id, n: 0, found: 0 })
      while (!ended) {
        await this.step(n + 1)
        n++
        tell({ step: 1 })
      }
    } catch (err) {
      tell({ failed: `${this.id}, step ${n + 1}, ${this.doing}: ${err.stack} ${JSON.stringify(err)}` })
    }
    tell({ worker: this.id, steps: n })
  }
}

const workers = Array.from({ length: part.workers }, (_, i) => new Worker(i))
Promise.all(workers.map(w => w.run())).finally(() => Promise.all([shared, ...workers.map(w => w.client)].map(c => c.close())))
