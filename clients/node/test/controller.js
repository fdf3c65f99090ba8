// A controller as an application sees it, and what a test needs around it.
import http from 'node:http'
import { once } from 'node:events'

export const at = (version, revision) => ({
  state: 'OPEN', version, revision: String(revision), database: `dbc_${version}`, cluster: 'one', hosts: 'db1:27017', upgradeId: '', attempt: '0',
  kinds: [{ kind: 'orders', database: `dbc_${version}`, collection: 'orders', fixed: true }]
})

export const hold = (version, revision, attempt) => ({ ...at(version, revision), state: 'HOLD', upgradeId: 'up-1', attempt: String(attempt) })

/** What all controllers of a test know. */
export class Deployment {
  location = at('v1', 1)
  registered = new Set()
  loseAnswers = 0 // of so many registrations more
  acks = []
  answersAnyName = false // as a controller of a time before it looked
  waiting = new Set()

  set (location) {
    this.location = location
    for (const wake of this.waiting) wake()
    this.waiting.clear()
  }
}

/** Starts a controller; t ends it. It answers where the data is, to who does not wait for news, when ready says so. The first times answers are status. */
export async function controller (t, deployment, { status, times = Infinity, silent, ready = () => true } = {}) {
  const unanswered = new Set() // of a silent one
  const state = { stands: false, gaveUp: 0 } // it answers no call any more, as a process that was stopped; calls that ended so
  const server = http.createServer(async (req, res) => {
    if (silent) {
      const method = req.url.split('/').pop()
      unanswered.add(method)
      res.on('close', () => unanswered.delete(method))
      return
    }
    let text = ''
    for await (const part of req) text += part
    const ask = JSON.parse(text)
    const method = req.url.split('/').pop()
    const answer = (body, code = 200) => {
      res.writeHead(code, { 'Content-Type': 'application/json' })
      res.end(JSON.stringify(body))
    }
    const still = () => {
      if (state.stands) res.on('close', () => { state.gaveUp++ })
      return state.stands
    }
    if (still()) return
    if (status && times-- > 0) return answer(status.body, status.code)
    server.seen.push({ method, ...ask, authorization: req.headers.authorization })
    if (ask.name && deployment.location.deployment && !deployment.answersAnyName && ask.name !== deployment.location.deployment) {
      return answer({ code: 'not_found', message: 'there is no such deployment' }, 404)
    }
    switch (method) {
      case 'RegisterClient': {
        const { clientId } = ask
        deployment.registered.add(clientId)
        if (deployment.loseAnswers-- > 0) return req.socket.destroy()
        return answer({ clientId, ttlMs: ask.ttlMs, location: deployment.location })
      }
      case 'DeregisterClient':
        deployment.registered.delete(ask.clientId)
        return answer({})
      case 'AckHold':
        deployment.acks.push(Number(ask.attempt))
        return answer({ acked: 1, total: 1 })
      case 'GetLocation':
        if (ask.waitRevision && Number(deployment.location.revision) <= Number(ask.waitRevision)) {
          await new Promise(resolve => {
            deployment.waiting.add(resolve)
            setTimeout(resolve, ask.timeoutMs).unref()
          })
        }
        while (!ask.waitRevision && !res.closed && !ready()) await new Promise(resolve => setTimeout(resolve, 2))
        if (still()) return
        return answer(deployment.location)
    }
  })
  server.seen = []
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const end = () => { server.closeAllConnections(); server.close() }
  t.after(end)
  return { address: `127.0.0.1:${server.address().port}`, end, seen: server.seen, unanswered, state }
}

/** A client of a MongoDB that is never asked; an error that is inserted is thrown, as the server's. */
export const mongo = {
  db: database => ({
    collection: name => ({ place: `${database}.${name}`, insertOne: async what => { if (what instanceof Error) throw what } })
  })
}

export async function eventually (what, ok) {
  for (const until = performance.now() + 60_000; !ok();) {
    if (performance.now() > until) throw new Error(`${what} does not come`)
    await new Promise(resolve => setTimeout(resolve, 2))
  }
}
