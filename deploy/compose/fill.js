// Makes MongoDB a replica set, and writes 40,000 orders unless the shop has a collection already. For mongosh.
let mongo
while (!mongo) {
  try { mongo = new Mongo('mongodb://mongodb:27017/?directConnection=true') } catch (e) { sleep(500) }
}
const admin = mongo.getDB('admin')
try {
  admin.adminCommand({ replSetInitiate: { _id: 'rs0', members: [{ _id: 0, host: 'mongodb:27017' }] } })
} catch (e) {
  if (e.codeName !== 'AlreadyInitialized') throw e
}
while (!admin.hello().isWritablePrimary) sleep(200)

const shop = mongo.getDB('shop')
if (shop.getCollectionNames().length === 0) {
  for (let from = 0; from < 40000; from += 5000) {
    shop.orders.insertMany([...Array(5000).keys()].map(i => ({ _id: from + i, customer: `customers/${i}`, state: 'paid', lines: 1 })))
  }
  print('the shop has 40,000 orders')
}
