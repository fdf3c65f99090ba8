import mongoose from 'mongoose'
import { connect } from '@dbcontroller/client'

const { Schema } = mongoose
const customer = { type: Schema.Types.ObjectId, ref: 'customers' }
// A model creates nothing by itself: the names of the version to come belong to the upgrade.
const options = { timestamps: true, autoCreate: false, autoIndex: false }
const schemas = {
  v1: {
    customers: new Schema({ name: String, mail: { type: String, unique: true }, address: { street: String, city: String }, n: Number }, options),
    orders: new Schema({ customer, lines: [{ sku: String, count: Number }], n: Number, first: String }, options)
  },
  v2: {
    customers: new Schema({ name: String, email: { type: String, unique: true }, address: { street: String }, city: String, n: Number }, options),
    orders: new Schema({ customer, items: [{ sku: String, quantity: Number }], n: Number, first: String }, options)
  }
}

/** The models of the version that is served, in its collections. */
export function models (at) {
  const found = {}
  for (const [kind, schema] of Object.entries(schemas[at.version.split('@')[0]])) {
    const { dbName, collectionName } = at.collection(kind)
    const connection = mongoose.connection.useDb(dbName, { useCache: true }) // the same pool
    found[kind] = connection.models[kind] ?? connection.model(kind, schema, collectionName)
  }
  return found
}

/** Connects, and creates the indexes of the version that is served. */
export async function open (uri, controllers, application) {
  await mongoose.connect(uri, { bufferCommands: false, writeConcern: { w: 'majority' } })
  const app = await connect({ controllers, application, mongo: mongoose.connection.getClient() })
  await app.write(async at => { for (const model of Object.values(models(at))) await model.createIndexes() })
  return app
}

/** Closes both; each of them keeps the process alive. */
export async function close (app) {
  await app.close()
  await mongoose.disconnect()
}
