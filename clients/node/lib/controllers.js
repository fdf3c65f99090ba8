// Calls of the Deployment API, by HTTP and JSON, at whichever controller answers.
import http from 'node:http'
import https from 'node:https'
import { exposed, trusted } from './files.js'

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

  /** The token of a file. It is read for each call, since it may have been exchanged. */
  tokenIn (file) {
    const token = trusted(file).trim()
    if (!this.warned && exposed(file)) {
      this.warned = true
      this.log?.(`everybody on this machine can read ${file}, which has a token: chmod o-r it`)
    }
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
    const tls = options.ca || options.cert
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
    this.agent = plain
      ? new http.Agent({ keepAlive: true })
      : new https.Agent({ keepAlive: true, ca: options.ca, cert: options.cert, key: options.key })
  }

  close () { this.agent.destroy() }

  /** @returns {Promise<any>} the answer; an error has the code of the API, or 'unavailable'. */
  call (method, request, { timeout = callTimeout, signal } = {}) {
    return new Promise((resolve, reject) => {
      const failed = (code, message) => reject(Object.assign(new Error(`${this.url.host}: ${method}: ${message}`), { code }))
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
      const req = send(new URL(`/dbcontroller.v1.DeploymentService/${method}`, this.url), { method: 'POST', agent: this.agent, headers, signal })
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
          else failed(answer.code ?? 'unavailable', answer.message ?? `status ${res.statusCode}`)
        })
      })
      req.end(body)
    })
  }
}
