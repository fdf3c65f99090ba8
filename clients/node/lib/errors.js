// What became of a write, from its error.

/** A switch did not end in time, or no controller could say where the data is. Nothing was written: do it again. */
export class NotWrittenError extends Error {
  constructor (why, cause) {
    super(`nothing was written: ${why}`, { cause })
    this.name = 'NotWrittenError'
  }
}

/** The write, or a part of it, may have been done or not. Look before it is done again. */
export class UnknownOutcomeError extends Error {
  constructor (cause) {
    super(`it is not known whether this was written: ${cause?.message ?? cause}`, { cause })
    this.name = 'UnknownOutcomeError'
  }
}

/**
 * For a callback to throw: what it looked for is not there, and it has written nothing. It is run
 * again if the data has moved; otherwise the call throws this error.
 */
export class MovedError extends Error {
  constructor (what = 'it is not there') {
    super(what)
    this.name = 'MovedError'
  }
}

// How a server refuses what is sent to a fenced collection.
const fenceCodes = [
  121, // a validator
  166, // a view
  361, // another identity
  371 // a write block
]

// How a read fails that was sent to where the data was: the collection or its cursor is gone, or
// a version that was completed has left a view that fails.
const readCodes = [26, 43, 175, 241, ...fenceCodes]

// Codes after which the driver could not find out what became of a write. The driver repeats
// most of them once by itself.
const unknownCodes = [
  6, 7, 89, 202, 9001, // network
  91, 189, 10107, 11600, 11602, 13435, 13436, // another primary
  50, 262, 11601, 46841, // interrupted
  64, 100, // not by a majority, yet
  175 // of many documents some were written
]

const hasLabel = (err, label) => typeof err?.hasErrorLabel === 'function' && err.hasErrorLabel(label)

// Classes of the driver are told by their names: the application has a driver of its own.
export const isA = (err, ...names) => {
  for (let p = Object.getPrototypeOf(err ?? {}); p; p = Object.getPrototypeOf(p)) {
    if (names.includes(p.constructor?.name)) return true
  }
  return false
}

/**
 * Tells what became of a write from its error, and whether a fence, if it was one, is known to have
 * refused it as a whole: 'refused' by a fence or by something of the application's own,
 * nothing was written; 'torn', the same, and a part may have been written; 'undone', a transaction that was ended and can be run again at once;
 * 'unknown'; 'failed' by an error that has nothing to do with a switch.
 */
export function outcomeOf (err, whole) {
  for (const e of causes(err)) {
    const became = outcomeOfOne(e, whole)
    if (became !== 'failed' || isA(e, 'MongoError')) return became // what the driver says of itself stands
  }
  return 'failed'
}

/** An error and those that it wraps, as cause. An application may wrap what the driver throws. */
export function causes (err) {
  const all = []
  for (let e = err; Object(e) === e && !all.includes(e); e = e.cause) all.push(e)
  return all
}

// Mongoose throws these where the document to change is not there, or not in that version.
// It has written nothing then.
const mongooseFoundNone = ['DocumentNotFoundError', 'VersionError']

function outcomeOfOne (err, whole) {
  if (err instanceof MovedError || isA(err, ...mongooseFoundNone)) return 'refused'
  if (hasLabel(err, 'UnknownTransactionCommitResult')) return 'unknown'
  if (hasLabel(err, 'TransientTransactionError')) return 'undone'
  if (isA(err, 'MongoBulkWriteError', 'MongoClientBulkWriteError')) return bulkOutcome(err, whole)
  if (isA(err, 'MongoWriteConcernError')) return 'unknown' // done there, and maybe not by a majority
  if (fenceCodes.includes(err?.code)) return whole ? 'refused' : 'torn'
  if (hasLabel(err, 'NoWritesPerformed')) return 'failed'
  if (isA(err, 'MongoNetworkError', 'MongoNetworkTimeoutError', 'MongoServerSelectionError', 'MongoOperationTimeoutError', 'MongoPoolClearedError')) return 'unknown'
  if (hasLabel(err, 'RetryableWriteError') || err?.name === 'AbortError' || unknownCodes.includes(err?.code)) return 'unknown'
  return 'failed'
}

function bulkOutcome (err, whole) {
  const errors = [err.writeErrors ?? []].flat().concat(err.writeErrors instanceof Map ? [...err.writeErrors.values()] : [])
  const codes = errors.map(e => e?.code ?? e?.err?.code).concat(err.code ?? [])
  if (err.writeConcernErrors?.length > 0 || err.result?.getWriteConcernError?.()) return 'unknown'
  if (hasLabel(err, 'RetryableWriteError') || codes.some(c => unknownCodes.includes(c))) return 'unknown'
  // What ended the whole of it, as a broken connection does, is inside.
  const inner = [err.cause, err.errorResponse].find(e => e instanceof Error)
  const became = codes.some(c => fenceCodes.includes(c)) ? 'refused' : inner ? outcomeOf(inner, whole) : 'failed'
  return ['refused', 'torn'].includes(became) && !whole ? 'unknown' : became
}

/** Tells whether a read can have failed because its data has moved. */
export const mayHaveMoved = err => causes(err).some(e => e instanceof MovedError || isA(e, ...mongooseFoundNone) || readCodes.includes(e.code))
