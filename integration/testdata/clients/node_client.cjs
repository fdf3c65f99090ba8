// An application on the Node.js driver that knows nothing of dbcontroller. See TestUnmodifiedClients for its steps.
const { MongoClient, MongoNetworkError } = require('mongodb')
const { isDeepStrictEqual } = require('node:util')

const part = JSON.parse(process.env.CLIENT)
const client = new MongoClient(part.uri)
const db = client.db(part.database)
const [accounts, entries, records] = ['accounts', 'entries', 'records'].map(name => db.collection(name))
let ended = false
process.stdin.on('end', () => { ended = true }).resume()
const tell = line => process.stdout.write(JSON.stringify(line) + '\n')
const want = (what, got, wanted) => {
  if (!isDeepStrictEqual(got, wanted)) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(wanted)}`)
}
const random = () => Math.floor(Math.random() * part.accounts)

class Worker {
  constructor (number) { this.id = `${part.name}-${number}` }

  async step (n) {
    const key = `${this.id}-${n}`
    this.doing = 'count'
    want('count', (await accounts.updateOne({ _id: this.id }, { $inc: { n: 1 } })).modifiedCount, 1)
    this.doing = 'transaction'
    await client.withSession(session => session.withTransaction(async () => {
      await accounts.updateOne({ _id: random() }, { $inc: { money: -1 } }, { session })
      await accounts.updateOne({ _id: random() }, { $inc: { money: 1 } }, { session })
      await entries.insertOne({ _id: key + '-t', n }, { session })
    }))
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
        return (await records.find({}, { batchSize: 200 }).toArray()).map(d => d.n)
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
      await accounts.insertOne({ _id: this.id, n: 0, found: 0 })
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

Promise.all(Array.from({ length: part.workers }, (_, i) => new Worker(i).run())).finally(() => client.close())
