// An update of many documents that is still going on when the switch comes: one of the processes
// of integration.TestManyDocuments. It writes to standard output what became of it.
import { MongoClient } from 'mongodb'
import { connect } from '../index.js'

const { controllers, uri, name, slowly, kind } = JSON.parse(process.env.APPLICATION)
const mongo = new MongoClient(uri, { appName: name })
const app = await connect({ controllers, application: name, mongo })
let runs = 0
let outcome = 'done'
try {
  await app.write(at => {
    runs++
    return at.collection(kind).updateMany({ $where: slowly }, { $inc: { node: 1 } })
  })
} catch (err) {
  outcome = err.name
}
console.log(JSON.stringify({ outcome, runs }))
await app.close()
await mongo.close()
