// Calls of the Deployment API, by HTTP and JSON, at whichever controller answers.
import { X509Certificate } from 'node:crypto'
import http from 'node:http'
import https from 'node:https'
import { createSecureContext } from 'node:tls'
import { exposed, readAll, trusted } from './files.js'

const callTimeout = 2000 // ms, of a call that does not wait for anything
const longestAnswer = 16 << 20

export class Controllers {
  /** @param {import('../index.js').Options} options */
  constructor (options) {
    this.deployment = options.deployment // its name, once it is known
    this.log = options.log
    this.all = options.controllers.map(address => new Controller(address, options, this))
  }

  close () { for (const c of this.all) c.close() }

  #warned = new Set() // files that everybody can read

  /** Warns once of a secret that every user of the machine can read. */
  warn (file, what) {
    if (this.#warned.has(file) || !exposed(file)) return
    this.#warned.add(file)
    this.log?.(`everybody on this machine can read ${file}, which has ${what}: chmod o-r it`)
  }

  /** The token of a file. It is read for each call, since it may have been exchanged. */
  tokenIn (file) {
    const token = trusted(file).trim()
    this.warn(file, 'a token')
    return token
  }

  /** Asks all controllers at once, since one may stand still, and returns the first answer that accept takes. */
  async ask (method, request, accept) {
    try {
      return await Promise.any(this.all.map(async c => {
        const answer = await c.call(method, request)
        accept(answer)
        return answer
      }))
    } catch (err) {
      throw new Error(err.errors.map(e => e.message).join('; '), { cause: err })
    }
  }
}

class Controller {
  constructor (address, options, all) {
    this.options = options
    this.of = all
    const tls = options.ca || options.cert || options.caFile || options.certFile
    const url = new URL(address.includes('://') ? address : `${tls ? 'https' : 'http'}://${address}`)
    if (!['http:', 'https:'].includes(url.protocol) || url.username || url.password || url.pathname !== '/' || url.search) {
      throw new TypeError(`${url.host} is no address of a controller: give HOST:PORT or https://HOST:PORT`)
    }
    const plain = url.protocol === 'http:'
    if (plain && tls) throw new TypeError(`${url.origin} is without TLS, and a certificate was given: give https://${url.host}`)
    if (plain && (options.token || options.tokenFile) && !['localhost', '127.0.0.1', '[::1]'].includes(url.hostname)) {
      throw new TypeError(`${url.origin} is without TLS, and a token would be readable on the way: give https://${url.host}`)
    }
    this.url = url
    if (plain) this.agent = new http.Agent({ keepAlive: true })
    else this.#secure(this.#certificates())
  }

  close () { this.agent.destroy() }

  /** The agent for a call. Files of certificates are read again after a change; while they cannot be, the former ones stay. */
  agentNow () {
    const { caFile, certFile } = this.options
    if (!caFile && !certFile) return this.agent
    try {
      const certificates = this.#certificates()
      if (Object.entries(certificates).some(([name, text]) => text !== this.#used[name])) {
        const former = this.agent
        this.#secure(certificates)
        former.keepAlive = false // calls that wait go on
        for (const socket of Object.values(former.freeSockets).flat()) socket.destroy()
      }
    } catch (err) {
      if (err.message !== this.#lost) this.of.log?.(`the exchanged certificates cannot be used, going on with the former ones: ${err.message}`)
      this.#lost = err.message
    }
    return this.agent
  }

  #used // certificates, by the names of options
  #lost = '' // why exchanged ones are not used

  #certificates () {
    const { ca, cert, key, caFile, certFile, keyFile } = this.options
    const texts = readAll({ ca: caFile, cert: certFile, key: keyFile })
    if (keyFile) this.of.warn(keyFile, 'a key')
    return { ca, cert, key, ...texts }
  }

  #secure (certificates) {
    for (const ca of [certificates.ca ?? []].flat()) new X509Certificate(ca) // throws for a part of a file, which TLS takes for no authority
    this.agent = new https.Agent({ keepAlive: true, secureContext: createSecureContext(certificates) }) // throws if they do not fit
    this.#used = certificates
  }

  /** @returns {Promise<any>} the answer; an error has the code of the API, or 'unavailable', and whether a controller answered it. */
  call (method, request, { timeout = callTimeout, signal } = {}) {
    return new Promise((resolve, reject) => {
      const failed = (code, message, answered = false) => reject(Object.assign(new Error(`${this.url.host}: ${method}: ${message}`), { code, answered }))
      const body = JSON.stringify(this.of.deployment ? { name: this.of.deployment, ...request } : request)
      const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) }
      try {
        const { token, tokenFile } = this.options
        const secret = tokenFile ? this.of.tokenIn(tokenFile) : token
        if (secret) headers.Authorization = `Bearer ${secret}`
      } catch (err) {
        return failed('unauthenticated', err.message)
      }
      const send = this.url.protocol === 'http:' ? http.request : https.request
      const req = send(new URL(`/dbcontroller.v1.DeploymentService/${method}`, this.url), { method: 'POST', agent: this.agentNow(), headers, signal })
      const timer = setTimeout(() => req.destroy(new Error(`no answer within ${timeout} ms`)), timeout)
      req.on('error', err => { clearTimeout(timer); failed('unavailable', err.message) })
      req.on('response', res => {
        let text = ''
        res.setEncoding('utf8')
        res.on('data', part => {
          text += part
          if (text.length > longestAnswer) req.destroy(new Error('its answer is too long'))
        })
        res.on('error', err => { clearTimeout(timer); failed('unavailable', err.message) })
        res.on('end', () => {
          clearTimeout(timer)
          let answer
          try {
            answer = JSON.parse(text)
          } catch {
            return failed('unavailable', `status ${res.statusCode}, and no JSON: is it a controller?`)
          }
          // null and texts are JSON as well, and an error that is thrown here would end the process.
          if (answer === null || typeof answer !== 'object') failed('unavailable', `status ${res.statusCode}, and no object: is it a controller?`)
          else if (res.statusCode === 200) resolve(answer)
          else failed(answer.code ?? 'unavailable', answer.message ?? `status ${res.statusCode}`, true)
        })
      })
      req.end(body)
    })
  }
}
