// An application in TypeScript, which uses all that index.d.ts declares. package.test.js compiles
// and runs it; what is marked @ts-expect-error has to be refused.
import type { ClientSession, MongoClient } from 'mongodb'
import { App, MovedError, NotWrittenError, UnknownOutcomeError, connect } from '@dbcontroller/client'
import type { CallOptions, Options, Place, Where } from '@dbcontroller/client'

interface Order { _id: string, state: string }

/** Places orders, looks at one and closes; returns what it saw. */
export async function shop (controllers: string[], mongo: MongoClient): Promise<string[]> {
  const saw: string[] = []
  const clientAt = (at: Where): MongoClient => {
    const { version, database, hosts, cluster }: Record<keyof Where, string> = at
    saw.push([version, database, hosts, cluster].join(' '))
    return mongo
  }
  const options: Options = { controllers, application: 'shop', mongo: clientAt, log: line => { saw.push(line.trim()) } }
  const app: App = await connect(options)
  const patient: CallOptions = { patience: 1000 }
  const place = (at: Place) => at.collection<Order>('orders').insertOne({ _id: 'one', state: at.version })
  const id: string = (await app.write(place, patient)).insertedId
  const state: string | undefined = await app.read(async at => (await at.collection<Order>('orders').findOne({ _id: id }))?.state, patient)
  const within: string = await app.transaction(async (at, session: ClientSession) => {
    await at.collection<Order>('orders').insertOne({ _id: 'two', state: 'NEW' }, { session })
    return at.client === mongo ? 'same client' : 'another client'
  }, patient)
  const revision: number = app.revision
  saw.push(String(app.version satisfies string | undefined), String(revision), id, String(state), within)
  for (const thrown of [new MovedError('gone'), new MovedError()]) {
    await app.write(() => { throw thrown }, { patience: 0 }).catch(err => { saw.push(outcome(err)) })
  }
  await app.close()
  await app.write(place).catch(err => { saw.push(outcome(err)) })
  return saw
}

// Each option, of its type. Together they would not be taken.
export const every: Required<Options> = {
  controllers: ['db1:7090'],
  application: 'shop',
  mongo: async () => { throw new Error('no client') },
  deployment: 'services/shop.example.com/deployments/eu',
  memory: 'FILE',
  startTimeout: 1000,
  patience: 1000,
  ttl: 1000,
  token: 'TOKEN',
  tokenFile: 'FILE',
  ca: 'PEM',
  cert: Buffer.from('PEM'),
  key: 'PEM',
  caFile: 'FILE',
  certFile: 'FILE',
  keyFile: 'FILE',
  log: line => { line.trim() }
}

function outcome (err: unknown): string {
  if (err instanceof MovedError || err instanceof NotWrittenError || err instanceof UnknownOutcomeError) {
    const { name, message }: Error = err
    return `${name}: ${message}`
  }
  return String(err)
}

// Compiled, and never run.
export async function refused (app: App, mongo: MongoClient): Promise<void> {
  // @ts-expect-error it is made by connect
  new App()
  // @ts-expect-error the application has a name
  await connect({ controllers: ['db1:7090'], mongo })
  // @ts-expect-error several controllers are a list
  await connect({ controllers: 'db1:7090', application: 'shop', mongo })
  // @ts-expect-error there is no such option
  await connect({ controllers: ['db1:7090'], application: 'shop', mongo, timeout: 1 })
  // @ts-expect-error a read has no session
  await app.read((at, session) => session)
  // @ts-expect-error another type of document
  await app.write(at => at.collection<Order>('orders').insertOne({ _id: 1, state: 'NEW' }))
  // @ts-expect-error it is the controllers' to say
  app.version = 'v2'
}
