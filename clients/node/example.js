import { MongoClient } from 'mongodb'
import { connect } from '@dbcontroller/client'

const mongo = new MongoClient(process.env.MONGO_URI)
const app = await connect({ controllers: process.env.CONTROLLERS.split(','), application: 'shop', mongo })
process.once('SIGTERM', () => app.close().finally(() => mongo.close())) // each of them keeps the process alive

const form = (version, { id, state }) => version === 'v1' ? { _id: id, state } : { _id: id, status: state }
export const place = order => app.write(at => at.collection('orders').insertOne(form(at.version, order)))
export const find = _id => app.read(at => at.collection('orders').findOne({ _id }))
