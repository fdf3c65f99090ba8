// The shop at work: ten new orders a second, each of which gets a second line and is read again. For mongosh.
let shop
while (!shop) {
  try { shop = new Mongo('mongodb://127.0.0.1:27018').getDB('shop') } catch (e) { sleep(500) }
}
const began = Date.now()
let written = 0, failed = 0, longest = 0
for (let reported = Date.now(); ; sleep(80)) {
  const before = Date.now(), _id = `${began}-${written + failed}`
  try {
    shop.orders.insertOne({ _id, customer: 'customers/1', state: 'new', lines: 1 })
    shop.orders.updateOne({ _id }, { $inc: { lines: 1 } })
    if (shop.orders.findOne({ _id }).lines !== 2) throw Error(`order ${_id} lacks a line`)
    written++
  } catch (e) {
    failed++
    print(`failed: ${e.message}`)
  }
  longest = Math.max(longest, Date.now() - before)
  if (Date.now() - reported > 5000) {
    print(`${written} orders written, ${failed} failed, the slowest of the last 5 s took ${longest} ms`)
    reported = Date.now()
    longest = 0
  }
}
