// What it guarantees is in README.md, and the protocol in docs/application.md.
export { connect, App } from './lib/app.js'
export { MovedError, NotWrittenError, UnknownOutcomeError } from './lib/errors.js'
