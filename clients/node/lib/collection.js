// What became of the operations of a write.
import { outcomeOf } from './errors.js'

const ofOne = ['insertOne', 'updateOne', 'replaceOne', 'deleteOne', 'findOneAndUpdate', 'findOneAndReplace', 'findOneAndDelete']
const counts = ['insertedCount', 'matchedCount', 'modifiedCount', 'deletedCount', 'upsertedCount']

// Errors of operations that wrote nothing, if it was a fence that refused them. Of an update of
// many documents that a fence met in the middle a server says the same as of one document.
const whole = new WeakSet()

/** Notes that the operation that failed with an error wrote nothing. */
export function wroteNothing (err) {
  if (Object(err) === err) whole.add(err)
}

/**
 * One run of a write's function, which may have several operations. It only gets worse: once one
 * of them has written, or may have, no later refusal makes the run one that wrote nothing.
 */
export class Attempt {
  // Operations of which it is not known that they wrote nothing: those that did, that may have,
  // and that are still going on.
  #wrote = 0

  begins () { this.#wrote++ }
  endedWithoutWriting () { this.#wrote-- }

  /** Tells what became of the run from its error. */
  became (err) {
    const wrote = this.#wrote > 0
    const became = outcomeOf(err, whole.has(err) && !wrote)
    if (wrote && became === 'refused') return 'torn' // a MovedError, after something was written
    if (wrote && became === 'undone') return 'unknown' // a transaction of its own, beside which something was written
    return became
  }
}

/**
 * A collection of the driver's, of whose operations an attempt is told. What is refused past it, and by
 * other methods, counts as of many documents; what is written past it is not seen.
 */
export function watched (collection, attempt) {
  // none tells whether what failed wrote nothing, if it was refused.
  const watch = (name, none) => {
    const run = collection[name]
    if (!run) return // tests have a part of it
    collection[name] = async (...args) => {
      attempt.begins()
      try {
        const result = await run.apply(collection, args)
        if (foundNone(result, args.at(-1))) attempt.endedWithoutWriting()
        return result
      } catch (err) {
        if (none(err, ...args)) {
          wroteNothing(err)
          if (['refused', 'failed'].includes(outcomeOf(err, true))) attempt.endedWithoutWriting()
        }
        throw err
      }
    }
  }
  const counted = err => counts.some(n => (err.partialResult ?? err)[n] > 0)
  for (const name of ofOne) watch(name, () => true)
  watch('insertMany', err => !counted(err))
  watch('bulkWrite', (err, operations) => !counted(err) && operations.every(o => o.insertOne || o.updateOne || o.replaceOne || o.deleteOne))
  for (const name of ['updateMany', 'deleteMany']) watch(name, () => false)
  const { aggregate } = collection
  collection.aggregate = (...args) => {
    if (Array.isArray(args[0]) && args[0].some(writes)) attempt.begins()
    const cursor = aggregate.apply(collection, args)
    const { addStage } = cursor // which out calls, too
    cursor.addStage = stage => {
      if (writes(stage)) attempt.begins()
      return addStage.call(cursor, stage)
    }
    return cursor
  }
  return collection
}

// writes tells whether a stage of a pipeline writes documents.
const writes = stage => Boolean(stage?.$out || stage?.$merge)

// foundNone tells whether there was nothing to write. An upsert also answers null, after it has inserted.
function foundNone (result, options) {
  if (result === null) return !options?.upsert
  return result?.acknowledged === true && counts.some(n => n in result) && counts.every(n => !(result[n] > 0))
}
