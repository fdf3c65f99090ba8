// An application with a login in its connection string, as any other one: it knows nothing of proxies. It works
// until SIGTERM, and ends with 1 at its first error.
import { MongoClient } from 'mongodb'

const client = new MongoClient(process.env.MONGO_URI)
const docs = client.db(process.env.DATABASE).collection('nodes')
let ends = false
process.on('SIGTERM', () => { ends = true })

for (let n = 0; !ends; n++) {
  await client.withSession(session => session.withTransaction(async session => {
    await docs.updateOne({ _id: 'a' }, { $inc: { n: 1 } }, { upsert: true, session })
    await docs.updateOne({ _id: 'b' }, { $inc: { n: 1 } }, { upsert: true, session })
  }))
  await docs.insertOne({ _id: n })
  const [a, b] = [await docs.findOne({ _id: 'a' }), await docs.findOne({ _id: 'b' })]
  if (a.n !== n + 1 || b.n !== n + 1 || await docs.countDocuments({ _id: { $type: 'number' } }) !== n + 1) {
    throw new Error(`after ${n + 1} calls: ${JSON.stringify([a, b])}`)
  }
}
await client.close()
