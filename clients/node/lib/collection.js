// What became of the operations of a write.
import { AsyncLocalStorage } from 'node:async_hooks'
import { causes, isA, outcomeOf } from './errors.js'

const ofOne = ['insertOne', 'updateOne', 'replaceOne', 'deleteOne', 'findOneAndUpdate', 'findOneAndReplace', 'findOneAndDelete']
const ofBulk = ['insertOne', 'updateOne', 'replaceOne', 'deleteOne']
const counts = ['insertedCount', 'matchedCount', 'modifiedCount', 'deletedCount', 'upsertedCount']

// Errors of operations that wrote nothing, if it was a fence that refused them. Of an update of
// many documents that a fence met in the middle a server says the same as of one document.
const whole = new WeakSet()

/** Notes that the operation that failed with an error wrote nothing. */
export function wroteNothing (err) {
  for (const e of causes(err)) whole.add(e)
}

/**
 * One run of a write's function, which may have several operations. It only gets worse: once one
 * of them has written, or may have, no later refusal makes the run one that wrote nothing.
 */
export class Attempt {
  // Operations of which it is not known that they wrote nothing: those that did, that may have,
  // and that are still going on. A transaction counts as one.
  #wrote = 0
  #transactions = new WeakSet() // sessions with one that counts

  begins () { this.#wrote++ }
  endedWithoutWriting () { this.#wrote-- }

  /** Counts the transaction of a session until it is known that it was not committed. */
  joins (session) {
    if (this.#transactions.has(session)) return
    this.#transactions.add(session)
    this.begins()
    const { abortTransaction, commitTransaction } = session
    const ends = wrote => {
      Object.assign(session, { abortTransaction, commitTransaction })
      this.#transactions.delete(session)
      if (!wrote) this.endedWithoutWriting()
    }
    session.abortTransaction = async (...args) => {
      await abortTransaction.apply(session, args) // throws where a commit was sent
      ends(false)
    }
    session.commitTransaction = async (...args) => {
      try {
        await commitTransaction.apply(session, args)
        ends(true)
      } catch (err) {
        if (outcomeOf(err, true) === 'undone') ends(false) // else it is tried again, or its outcome is unknown
        throw err
      }
    }
  }

  /** Tells what became of the run from its error. */
  became (err) {
    const wrote = this.#wrote > 0
    const became = outcomeOf(err, causes(err).some(e => whole.has(e)) && !wrote)
    if (wrote && became === 'refused') return 'torn' // a MovedError, after something was written
    if (wrote && became === 'undone') return 'unknown' // a transaction of its own, beside which something was written
    return became
  }
}

// The attempt in whose function the code runs, or inside.
const current = new AsyncLocalStorage()
// Within an operation that was heard. What it calls counts once.
const inside = Symbol('inside')

function currentAttempt () {
  const attempt = current.getStore()
  return attempt === inside ? undefined : attempt
}

/**
 * Runs a function, all of whose operations with a driver that is seen are told to an attempt. A query of Mongoose
 * begins only when somebody awaits it. So await the result here, where the operation is heard.
 */
export const during = (attempt, fn) => current.run(attempt, async () => await fn())

const seen = new WeakSet() // classes

/**
 * Has attempts hear of all operations of the driver that a client is of: a library above it, such
 * as Mongoose, has collections of its own. Outside of an attempt nothing changes.
 */
export function see (client) {
  if (!isA(client, 'MongoClient')) return
  const classes = [Object.getPrototypeOf(client.db('admin').collection('system.version')), Object.getPrototypeOf(client)]
  for (const [i, of] of classes.entries()) {
    if (seen.has(of)) continue
    seen.add(of)
    if (i === 0) watchCollection(of, currentAttempt)
    else watch(of, 'bulkWrite', currentAttempt, (err, models) => !counted(err) && models.every(m => ofBulk.includes(m.name)))
  }
}

/** A collection of the driver's, of whose operations an attempt is told, in whatever context they run. */
export function watched (collection, attempt) {
  watchCollection(collection, () => attempt)
  return collection
}

function watchCollection (of, attempt) {
  for (const name of ofOne) watch(of, name, attempt, () => true)
  watch(of, 'insertMany', attempt, err => !counted(err))
  watch(of, 'bulkWrite', attempt, (err, operations) => !counted(err) && operations.every(o => ofBulk.some(name => o[name])))
  for (const name of ['updateMany', 'deleteMany']) watch(of, name, attempt, () => false)
  for (const name of ['initializeOrderedBulkOp', 'initializeUnorderedBulkOp']) watchBulk(of, name, attempt)
  const { aggregate } = of
  of.aggregate = function (...args) {
    if (Array.isArray(args[0]) && args[0].some(writes)) attempt()?.begins()
    const cursor = current.run(inside, () => aggregate.apply(this, args))
    const { addStage } = cursor // which out calls, too
    cursor.addStage = stage => {
      if (writes(stage)) attempt()?.begins()
      return addStage.call(cursor, stage)
    }
    return cursor
  }
}

// watchBulk has an attempt hear when a bulk operation that a method returns is executed.
function watchBulk (of, name, attempt) {
  const initialize = of[name]
  if (!initialize) return // tests have a part of it
  of[name] = function (...args) {
    const bulk = initialize.apply(this, args)
    // The driver's bulkWrite makes one of its own, and is heard itself.
    if (current.getStore() !== inside) watch(bulk, 'execute', attempt, err => !counted(err) && bulk.batches.every(b => b.operations.every(ofOneDocument)), args.at(-1)?.session)
    return bulk
  }
}

// ofOneDocument tells whether a statement of a bulk operation writes one document. Only updates have multi, only deletes limit.
const ofOneDocument = statement => !statement.multi && statement.limit !== 0

// watch has an attempt hear of a method. none tells whether what failed wrote nothing, if it was refused.
function watch (of, name, attemptOf, none, session) {
  const run = of[name]
  if (!run) return // tests have a part of it
  of[name] = function (...args) {
    const attempt = attemptOf()
    if (!attempt) return run.apply(this, args)
    return heard(attempt, () => current.run(inside, () => run.apply(this, args)), args, none, session) // what it calls counts once
  }
}

async function heard (attempt, run, args, none, session = args.at(-1)?.session) {
  const transaction = Boolean(session?.inTransaction?.())
  if (transaction) attempt.joins(session)
  else attempt.begins()
  try {
    const result = await run()
    if (!transaction && foundNone(result, args.at(-1))) attempt.endedWithoutWriting()
    return result
  } catch (err) {
    if (transaction) {
      wroteNothing(err) // unless the transaction is committed all the same, and that counts
    } else if (none(err, ...args)) {
      wroteNothing(err)
      if (['refused', 'failed'].includes(outcomeOf(err, true))) attempt.endedWithoutWriting()
    }
    throw err
  }
}

const counted = err => counts.some(n => (err.partialResult ?? err)[n] > 0)

// writes tells whether a stage of a pipeline writes documents.
const writes = stage => Boolean(stage?.$out || stage?.$merge)

// foundNone tells whether there was nothing to write. An upsert also answers null, after it has inserted.
function foundNone (result, options) {
  if (result === null) return !options?.upsert
  return result?.acknowledged === true && counts.some(n => n in result) && counts.every(n => !(result[n] > 0))
}
