// One process of an application, which follows its collections through switches.
import { randomBytes } from 'node:crypto'
import { setTimeout as timer } from 'node:timers/promises'
import { Controllers } from './controllers.js'
import { Attempt, during, see, watched, wroteNothing } from './collection.js'
import { NotWrittenError, UnknownOutcomeError, mayHaveMoved } from './errors.js'
import * as memory from './memory.js'

const callTimeout = 2000
// How long one call waits for news at most. A controller that stands still is noticed after that.
const longestPoll = 5000

// Answers of a controller that time does not change.
const permanent = ['invalid_argument', 'unauthenticated', 'permission_denied', 'unimplemented']

// A controller is one of another deployment.
class OtherDeploymentError extends Error {}

// A client does not reach the collections of a location.
class OtherClusterError extends Error {}

/**
 * Registers the application and finds out where its data is.
 * @param {import('../index.js').Options} options
 */
export async function connect (options) {
  const app = new App(options)
  try {
    await app.start()
  } catch (err) {
    app.controllers.close()
    throw err
  }
  return app
}

export class App {
  #options; #id; #met = false; #newest; #open; #writes = 0
  #closing = false // no call begins
  #closed = false // no write reaches the database
  #entering = new Set() // promises of the places of writes that wait for their client
  // The cluster of options.mongo as a client: the recognized one. If the first location comes from an
  // older controller, without identities, it is the cluster of that location.
  #cluster
  #recognized = new Set() // clusters that a client is known to reach
  #news = deferred() // resolved, and another one, with each newer location
  #idle = null // resolved when writes falls to 0, if somebody waits
  #clients = new Map() // of options.mongo as a function, by cluster
  #stopping = new AbortController()
  #following = Promise.resolve()
  #remembering = Promise.resolve()

  constructor (options) {
    this.#options = complete(options)
    this.#id = `client-${this.#options.application}-${randomBytes(8).toString('hex')}`
    this.controllers = new Controllers(this.#options)
  }

  /** The version that reads go to now. */
  get version () { return this.#open?.version }

  /** The revision of the newest location that was heard of. It grows, unless the record of the deployment was lost and recovered. */
  get revision () { return Number(this.#newest?.revision ?? 0) }

  /**
   * Runs a write where the data is, and again where the data has moved to if the database refused
   * it as a whole, which is known of methods that write single documents, and of transactions. It should be one of these: of several documents that are written at once or one
   * after the other, some may have been before a fence met the others, and that is an UnknownOutcomeError.
   */
  write (fn, options) {
    return this.#write((place, attempt) => fn(place(attempt)), options)
  }

  async #write (fn, { patience = this.#options.patience } = {}) {
    let until = Date.now() + patience
    for (let wait = 10; ; wait = Math.min(2 * wait, 1000)) {
      const { place, seen, stranger } = await this.#enter(until)
      if (stranger) {
        if (!await this.#passed(seen, until) || Date.now() + wait > until) throw new NotWrittenError(stranger.message, stranger)
        await sleep(wait)
        continue
      }
      const attempt = new Attempt()
      const began = Date.now()
      let failure
      try {
        return await during(attempt, () => fn(place, attempt))
      } catch (err) {
        failure = err
      } finally {
        this.#leave()
      }
      const became = attempt.became(failure)
      switch (became) {
        case 'unknown':
          throw new UnknownOutcomeError(failure)
        case 'failed':
          throw failure
        case 'refused':
        case 'torn': {
          // Patience is for waits. A process that slept within fn would give up without asking where the data are.
          until += Date.now() - began
          let moved
          try {
            moved = await this.#moved(seen, until)
          } catch (err) {
            if (became === 'torn') throw new UnknownOutcomeError(failure)
            throw new NotWrittenError(`${err.message}; the database said: ${failure.message}`, failure)
          }
          if (!moved) throw failure // the application's own validator, view or block
          if (became === 'torn') throw new UnknownOutcomeError(failure)
        }
      }
      if (Date.now() + wait > until) throw new NotWrittenError(failure.message, failure)
      await sleep(wait)
    }
  }

  /** Runs a transaction as write does a write. Operations take the session that fn gets. */
  transaction (fn, options) {
    return this.#write(async place => {
      const at = place()
      try {
        return await at.client.withSession(session => session.withTransaction(() => fn(at, session)))
      } catch (err) {
        wroteNothing(err) // if something was refused, the transaction was ended with it
        throw err
      }
    }, options)
  }

  /**
   * Runs a read where the data is, also while writes are held, and again where the data has moved
   * to if that is why it failed. A cursor is read within fn.
   */
  async read (fn, { patience = this.#options.patience } = {}) {
    let until = Date.now() + patience
    for (let wait = 10; ; wait = Math.min(2 * wait, 1000)) {
      const { place, seen, stranger } = await this.#readable(until)
      if (stranger) {
        if (!await this.#passed(seen, until) || Date.now() + wait > until) throw stranger
        await sleep(wait)
        continue
      }
      const began = Date.now()
      try {
        return await fn(place())
      } catch (err) {
        // Reading a long cursor is no wait.
        until += Date.now() - began
        if (!mayHaveMoved(err) || Date.now() + wait > until) throw err
        // While a switch is under way the rename that ended a read may not be confirmed yet.
        const moved = await this.#moved(seen, until).catch(() => undefined)
        if (moved === undefined || (!moved && this.#newest.state === 'OPEN')) throw err
      }
      await sleep(wait)
    }
  }

  /** Lets writes in flight end, and tells the controllers that the application is gone. */
  async close () {
    if (this.#closing) return
    this.#closing = true
    this.#tellNews()
    // Writes that wait for their client may still begin. A function mongo may stand still.
    await within(Promise.allSettled(this.#entering), Date.now() + callTimeout)
    this.#closed = true
    while (this.#writes > 0) await within(this.#idleOnce(), Date.now() + 1000)
    this.#stopping.abort()
    this.#tellNews()
    await this.#following
    try {
      if (this.#met) await this.#anyOf(c => c.call('DeregisterClient', { clientId: this.#id }))
      await within(this.#remembering, Date.now() + callTimeout)
    } finally {
      this.controllers.close()
    }
  }

  // start registers, or goes by what is remembered.
  async start () {
    const until = Date.now() + this.#options.startTimeout
    const { memory: file } = this.#options
    this.controllers.deployment ||= await memory.deploymentOf(file)
    let first = 0
    let registered = 0
    let said // by each controller
    for (let wait = 10; ; wait = Math.min(2 * wait, 1000)) {
      said = []
      let others = 0
      let refused = '' // code of a controller that refuses the application
      let undecided = false // a controller answered otherwise, such as "stopping"
      for (const [i, c] of this.controllers.all.entries()) {
        try {
          await this.#register(c)
          first = i
          registered = Date.now()
          break
        } catch (err) {
          if (permanent.includes(err.code)) refused = err.code
          else if (err instanceof OtherDeploymentError) others++
          else if (err.answered) undecided = true
          said.push(err.message)
        }
      }
      if (registered) break
      if (others === this.controllers.all.length) throw new Error(said.join('; ')) // time does not change whose they are
      // One alone may not have read a new token yet.
      if (refused && !undecided) throw Object.assign(new Error(said.join('; ')), { code: refused })
      if (Date.now() + wait > until) {
        let at
        try {
          at = await memory.recall(file, this.#options.deployment, l => this.#clientAt(l))
        } catch (err) {
          throw new Error(`no controller can be reached (${said.join('; ')}), and ${err.message}`)
        }
        this.#options.log(`no controller can be reached: going on where the data of ${at.version} was`)
        this.#accept(at)
        break
      }
      await sleep(wait)
    }
    this.#following = this.#follow(first, registered)
    const tried = deferred()
    this.#remembering = this.#keepMemory(tried)
    // A process that ends soon must have a memory all the same.
    await within(tried.promise, Date.now() + callTimeout)
  }

  // follow keeps the registration and takes news of the location, at one controller after the other.
  async #follow (at, registered) {
    const { signal } = this.#stopping
    const state = { registered, acked: '' }
    let lost = ''
    let wait = 10
    let leave = this.#beside(at)
    while (!signal.aborted) {
      const c = this.controllers.all[at % this.controllers.all.length]
      try {
        await this.#followOnce(c, state)
        lost = ''
        wait = 10
      } catch (err) {
        if (signal.aborted) break
        lost = this.#warnOnce(err, lost)
        // The next one holds the registration, and knows nothing of what was acknowledged if
        // that has ended meanwhile.
        state.registered = 0
        state.acked = ''
        at++
        // The second call must wait at another controller than this one does now.
        await leave()
        leave = this.#beside(at)
        if (at % this.controllers.all.length === 0 || err.code !== 'unavailable') {
          await pause(wait, signal)
          wait = Math.min(2 * wait, 1000)
        }
      }
    }
    await leave()
  }

  // beside waits for news at a second controller, while follow waits at the one with index at. That
  // one may stand still: follow would notice this only after longestPoll and callTimeout, and a
  // switch does not wait that long for an acknowledgement. It returns a function that ends it.
  #beside (at) {
    if (this.controllers.all.length === 1) return async () => {}
    const leaving = new AbortController()
    const watching = this.#watch(at, leaving.signal)
    return () => {
      leaving.abort()
      return watching
    }
  }

  // watch waits for news, and acknowledges holds, at any controller except the one with index at.
  // Only follow registers, so its calls have no client id: a controller must not end the
  // registration when watch breaks off.
  async #watch (at, signal) {
    const { all } = this.controllers
    const state = { acked: '' }
    let lost = ''
    let wait = 10
    for (let i = 0; !signal.aborted;) {
      try {
        await this.#await(all[(at + 1 + i % (all.length - 1)) % all.length], '', state, signal)
        lost = ''
        wait = 10
      } catch (err) {
        if (signal.aborted) return
        lost = this.#warnOnce(err, lost)
        state.acked = ''
        i++
        await pause(wait, signal)
        wait = Math.min(2 * wait, 1000)
      }
    }
  }

  // warnOnce logs the error of a controller, unless it is the last logged one, and returns its message.
  #warnOnce ({ message }, lost) {
    if (message !== lost) this.#options.log(`a controller does not answer; asking another one: ${message}`)
    return message
  }

  async #followOnce (c, state) {
    const { ttl } = this.#options
    const since = Date.now() - state.registered
    // A clock that was set back hides how long ago it was.
    if (since < 0 || since > ttl / 3) {
      await this.#register(c)
      state.registered = Date.now()
    }
    await this.#await(c, this.#id, state, this.#stopping.signal)
  }

  // await waits at a controller for news, and acknowledges a hold there. The id shows the controller
  // that the application is alive; empty: it need not know.
  async #await (c, id, state, signal) {
    const location = this.#newest
    const { upgradeId, attempt } = location
    const poll = Math.min(this.#options.ttl / 3, longestPoll)
    const news = async signal => this.#accept(await c.call('GetLocation',
      { clientId: id, waitRevision: location.revision, timeoutMs: Math.ceil(poll) }, { timeout: poll + callTimeout, signal }))
    const asked = `${upgradeId}/${attempt}` // attempts begin anew with each upgrade
    if (location.state !== 'HOLD' || !upgradeId || state.acked === asked) return news(signal)

    // Writes in flight are waited for beside the call for news. If the process dies meanwhile, the call
    // breaks, and the controller sees that it waits in vain.
    const over = new AbortController()
    const acknowledge = async () => {
      await Promise.race([this.#idleOnce(), new Promise(resolve => over.signal.addEventListener('abort', resolve))])
      if (over.signal.aborted) return // the next call waits again if it is still a hold
      await c.call('AckHold', { clientId: this.#id, upgradeId, attempt }, { signal }).catch(err => {
        if (err.code !== 'failed_precondition') throw err // else nobody waits for it any more
      })
      state.acked = asked
    }
    const acknowledged = acknowledge().then(() => {}, err => { over.abort(); return err })
    const broken = await news(AbortSignal.any([signal, over.signal])).then(() => {}, err => err)
    over.abort()
    const failure = await acknowledged ?? broken
    if (failure) throw failure
  }

  async #register (c) {
    const { application, ttl } = this.#options
    const answer = await c.call('RegisterClient', { application, clientId: this.#id, ttlMs: ttl })
    this.#met = true
    this.#accept(answer.location)
  }

  async #anyOf (call) {
    let last
    for (const c of this.controllers.all) {
      try {
        return await call(c)
      } catch (err) {
        last = err
      }
    }
    throw last
  }

  // accept takes a location, unless it is older than the one at hand. One of another deployment
  // is refused: its collections are not those of this application, whatever they are called.
  #accept (location) {
    const { deployment: of } = location // empty: a controller that does not say so yet
    const { deployment: ours } = this.controllers
    if (of && ours && of !== ours) {
      const { deployment, memory: file } = this.#options
      throw new OtherDeploymentError(`this is a controller of ${of}, not of ${ours}: correct controllers` +
        (!deployment && file ? `, or remove ${file} if this application has changed its deployment` : ''))
    }
    if (this.#newest && !isNewer(location, momentOf(this.#newest))) return
    this.controllers.deployment ||= of
    // Its identities tell more than the name of its cluster, which options.mongo need not be a client of.
    if (!this.#newest && !identified(location)) this.#cluster = location.cluster
    this.#newest = location
    if (location.state === 'OPEN') this.#open = location
    this.#tellNews()
  }

  #tellNews () {
    const news = this.#news
    this.#news = deferred()
    news.resolve()
  }

  // keepMemory stores each newest open location, until close. It runs beside follow: a slow database or
  // function mongo must not delay the acknowledgement of a hold. It stores one location at a time, and
  // skips those that newer ones have replaced.
  async #keepMemory (tried) {
    const { memory: file } = this.#options
    let written = { epoch: 0, revision: 0 }
    while (file && !this.#stopping.signal.aborted) {
      const news = this.#news.promise
      const location = this.#newest
      let failed = false
      if (location.state === 'OPEN' && isNewer(location, written)) {
        failed = !await this.#remember(file, location)
        if (!failed) written = momentOf(location)
      }
      tried.resolve()
      await (failed ? pause(longestPoll, this.#stopping.signal) : news)
    }
    tried.resolve()
  }

  // remember tells whether it stored a location. The file is for a later start that may never need it.
  async #remember (file, location) {
    try {
      const client = await this.#clientAt(location)
      await this.#recognize(client, location)
      await memory.write(file, this.controllers.deployment, location, await memory.identities(client, location))
      return true
    } catch (err) {
      this.#options.log(`cannot remember where the data is in ${file}: ${err.message}`)
      return false
    }
  }

  // enter waits until writing is allowed, and returns where. Every enter that succeeds needs a leave.
  async #enter (until) {
    for (;;) {
      if (this.#closing) throw new NotWrittenError('the application was closed')
      const location = this.#newest
      if (location.state === 'OPEN') {
        // Not counted yet: a function mongo may take long, and a hold must not wait for a write that
        // has not begun.
        const placing = this.#place(location)
        this.#entering.add(placing)
        try {
          const place = await placing
          if (this.#closed || location !== this.#newest) continue
          this.#writes++
          return { place, seen: momentOf(location) }
        } catch (err) {
          if (err instanceof OtherClusterError) return { stranger: err, seen: momentOf(location) }
          throw new NotWrittenError(err.message, err)
        } finally {
          this.#entering.delete(placing)
        }
      }
      if (!await within(this.#news.promise, until)) throw new NotWrittenError('writes are held for a switch, which has not ended')
    }
  }

  #leave () {
    if (--this.#writes === 0 && this.#idle) {
      this.#idle.resolve()
      this.#idle = null
    }
  }

  // readable waits for the first location that is open, and returns the newest such one, and how
  // new what is known now is: a location that holds writes may name a version whose
  // collections do not bear their names yet, and there reads would find nothing.
  async #readable (until) {
    for (;;) {
      if (this.#closing) throw new Error('the application was closed')
      if (this.#open) {
        const seen = momentOf(this.#newest)
        const location = this.#open
        try {
          return { place: await this.#place(location), seen }
        } catch (err) {
          if (!(err instanceof OtherClusterError)) throw err
          if (this.#newest.state === 'OPEN') return { stranger: err, seen }
          // During a switch, a fence may already hide the collections. Reads go on.
          return { place: await this.#place(location, false), seen }
        }
      }
      if (!await within(this.#news.promise, until)) throw new Error('the application was opened during a switch, which has not ended')
    }
  }

  // idleOnce waits until no write is in flight.
  async #idleOnce () {
    if (this.#writes === 0) return
    this.#idle ??= deferred()
    await this.#idle.promise
  }

  // moved tells whether the location is newer than one that was seen.
  async #moved (seen, until) {
    for (let wait = 10; ; wait = Math.min(2 * wait, 1000)) {
      if (isNewer(this.#newest, seen)) return true
      try {
        const location = await this.controllers.ask('GetLocation', {}, location => this.#accept(location))
        return isNewer(location, seen)
      } catch (err) {
        if (Date.now() + wait > until) throw new Error(`ask where the data is: ${err.message}`)
        await sleep(wait)
      }
    }
  }

  // passed tells whether the data has moved since a location whose collections a client does not
  // reach. A switch or a new collection then explains that.
  async #passed (seen, until) {
    try {
      return await this.#moved(seen, until)
    } catch {
      return false
    }
  }

  // recognize checks, once for each cluster, that a client reaches the data of a location. A name
  // proves nothing: a write to a missing collection creates it. One matching identity is enough,
  // because the application may have replaced other collections a moment ago.
  async #recognize (client, location) {
    const key = clusterKey(location)
    if (!identified(location) || this.#recognized.has(key)) return
    const { version, hosts, cluster, kinds } = location
    let stranger
    for (const k of kinds.filter(k => k.id)) {
      let id
      try {
        id = await memory.identityOf(client, k)
      } catch (err) {
        throw new Error(`check that this is the cluster of ${version}, at ${hosts}: look at ${k.collection}: ${err.message}`, { cause: err })
      }
      if (id === k.id) {
        this.#recognized.add(key)
        this.#cluster = cluster // for locations of older controllers
        return
      }
      stranger = k
    }
    const [what, advice] = typeof this.#options.mongo === 'function'
      ? ['the client from the function mongo', 'return a client that is connected to that cluster']
      : ['mongo', 'connect it to that cluster, or give a function as mongo if versions are in several clusters']
    throw new OtherClusterError(`the data of ${version} is in the cluster at ${hosts}, and ${what} finds no collection ` +
      `${stranger.database}.${stranger.collection} with UUID ${stranger.id}: ${advice}`)
  }

  // place returns what makes the place of a location, for an attempt if it matters which
  // operations wrote something.
  async #place (location, recognize = true) {
    const client = await this.#clientAt(location)
    if (recognize) await this.#recognize(client, location)
    see(client)
    const { version, kinds } = location
    return attempt => ({
      version,
      client,
      collection (kind) {
        const k = kinds.find(k => k.kind === kind)
        if (!k) throw new Error(`version ${version} has no kind ${JSON.stringify(kind)}, only ${kinds.map(k => k.kind).join(', ')}`)
        const collection = client.db(k.database).collection(k.collection)
        return attempt ? watched(collection, attempt) : collection
      }
    })
  }

  #clientAt (location) {
    const { mongo } = this.#options
    const { version, database, hosts, cluster } = location
    if (typeof mongo !== 'function') {
      // recognize checks locations with identities.
      if (!identified(location) && cluster && this.#cluster && cluster !== this.#cluster) {
        throw new Error(`the data of ${version} is in another cluster (${hosts}): give a function as mongo`)
      }
      return mongo
    }
    const key = clusterKey(location)
    let client = this.#clients.get(key)
    if (!client) {
      client = Promise.resolve().then(() => mongo({ version, database, hosts, cluster })) // one for all that ask meanwhile
      client.catch(() => this.#clients.delete(key))
      this.#clients.set(key, client)
    }
    return client
  }
}

// What orders locations: revisions alone do not, for they begin anew in the record that is
// recovered after etcd was lost, with a higher epoch.
const momentOf = ({ epoch = '0', revision }) => ({ epoch: Number(epoch), revision: Number(revision) })

function isNewer (location, than) {
  const { epoch, revision } = momentOf(location)
  return epoch > than.epoch || (epoch === than.epoch && revision > than.revision)
}

// Whether a location has the identity of a collection. Those of older controllers have none.
const identified = ({ kinds }) => (kinds ?? []).some(k => k.id)

const clusterKey = ({ cluster, hosts }) => `${cluster} ${hosts}`

function complete (options) {
  const { controllers, application, mongo, startTimeout = 10_000, patience = 30_000, ttl = 15_000, log = () => {} } = options
  if (!Array.isArray(controllers) || controllers.length === 0) throw new TypeError('no controllers are given: give the addresses of all of them, HOST:PORT')
  if (!application) throw new TypeError('the application has no name: give one, such as billing')
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/.test(application)) throw new TypeError(`application ${JSON.stringify(application)}: give a name of up to 100 letters, digits, and any of . _ -`)
  if (!mongo) throw new TypeError('give mongo, a MongoClient or a function that returns one for a place')
  if (!(ttl >= 1000 && ttl <= 300_000)) throw new TypeError(`ttl is ${ttl}: give 1000 to 300000 (ms)`)
  if ((options.cert === undefined) !== (options.key === undefined) || (options.certFile === undefined) !== (options.keyFile === undefined)) throw new TypeError('a client certificate and its key belong together: give both')
  return { ...options, startTimeout, patience, ttl, log }
}

function deferred () {
  let resolve
  const promise = new Promise(_resolve => { resolve = _resolve })
  return { promise, resolve }
}

const sleep = ms => timer(ms)

// pause is a sleep that a signal ends.
const pause = (ms, signal) => timer(ms, undefined, { signal }).catch(() => {})

// within tells whether a promise resolves until a time.
async function within (promise, until) {
  let timer
  const late = new Promise(resolve => { timer = setTimeout(resolve, Math.max(0, until - Date.now()), false) })
  try {
    return await Promise.race([promise.then(() => true), late])
  } finally {
    clearTimeout(timer)
  }
}

