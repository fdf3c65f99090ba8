import { MovedError } from '@dbcontroller/client'
import { models } from './shop.js'

/** Loads, changes and saves a customer. values returns its fields in a version. */
export function change (app, id, values) {
  return app.write(async at => {
    const customer = await models(at).customers.findById(id)
    if (!customer) throw new MovedError()
    customer.set(values(at.version))
    await customer.save()
  })
}

/** Creates an order and changes its customer, or does neither. */
export function place (app, id, values, order) {
  return app.transaction(async (at, session) => {
    const customer = await models(at).customers.findById(id, null, { session })
    if (!customer) throw new MovedError()
    customer.set(values(at.version))
    await customer.save({ session })
    await models(at).orders.create([order(at.version)], { session })
  })
}

/** Reads an order with its customer. */
export function read (app, id) {
  return app.read(at => models(at).orders.findById(id).populate('customer'))
}
