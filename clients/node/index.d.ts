import type { ClientSession, Collection, Document, MongoClient } from 'mongodb'

export interface Options {
  /** Addresses of controllers of one deployment, HOST:PORT or https://HOST:PORT. Give all of them: any can be down. */
  controllers: string[]
  /** Names the application: letters, digits, and any of . _ - */
  application: string
  /**
   * The database of all versions, where they are in one cluster; otherwise a function that
   * returns the one of a place, which is called once for each cluster. The client checks by the UUID of
   * a collection that it reaches the data, and needs listCollections for that.
   */
  mongo: MongoClient | ((at: Where) => MongoClient | Promise<MongoClient>)
  /**
   * The deployment's name; without it, the one that memory is of, or else the one that the first
   * controller to answer is configured with. It stays that one: controllers of another deployment
   * are refused.
   */
  deployment?: string
  /**
   * A file in which is kept where the data is, so that the application can start while no
   * controller can be reached. Without it, it cannot.
   */
  memory?: string
  /** How long connect looks for a controller, in ms; 10000. */
  startTimeout?: number
  /** How long a call waits for a switch to end, in ms; 30000. The time within a refused function does not count. */
  patience?: number
  /** How long a registration lasts when the machine of the application vanishes, in ms; 15000. */
  ttl?: number
  /** A bearer token, or a file with one, which is read at each call. */
  token?: string
  tokenFile?: string
  /** The controllers' authorities, and a client certificate with its key, in PEM. */
  ca?: string | Buffer | Array<string | Buffer>
  cert?: string | Buffer
  key?: string | Buffer
  /** Files with the same, in place of them. They are read again after a change. */
  caFile?: string
  certFile?: string
  keyFile?: string
  /** Is told of controllers that do not answer; without it nobody is. */
  log?: (line: string) => void
}

/** Which cluster holds the data. */
export interface Where {
  version: string
  database: string
  /** Of the cluster, comma-separated, as the controllers reach it. */
  hosts: string
  /** What the cluster calls itself; empty where that is not known. */
  cluster: string
}

/** Where the data of a version is. */
export interface Place {
  /** Whose form documents have here. */
  readonly version: string
  readonly client: MongoClient
  /**
   * The collection of a kind. A kind that the version does not have is an error. Only of its
   * methods that write single documents, of bulkWrite with such operations, and of insertMany is
   * it known that a fence refused them as a whole.
   * Within write, operations past it are seen as well, if they are of the same driver.
   */
  collection<T extends Document = Document> (kind: string): Collection<T>
}

export interface CallOptions {
  /** How long the call waits for a switch to end, in ms; as configured. */
  patience?: number
}

/** One process of an application. */
export class App {
  private constructor ()
  /** The version that reads go to now; undefined: it was opened during a switch. */
  readonly version: string | undefined
  /** The revision of the newest location that was heard of. It grows, unless the record of the deployment was lost and recovered. */
  readonly revision: number
  /**
   * Runs a write where the data is, and again where the data has moved to if the database
   * refused it as a whole. It should be one document of at.collection: of several that are
   * written at once or one after the other, some may have been before a fence met the others. It is
   * run again only if no operation wrote anything, or may have.
   * @throws {NotWrittenError} a switch did not end in time: nothing was written
   * @throws {UnknownOutcomeError} the write, or a part of it, may have been done or not
   */
  write<T> (fn: (at: Place) => T | Promise<T>, options?: CallOptions): Promise<T>
  /** Runs a transaction as write does a write. Operations take the session. */
  transaction<T> (fn: (at: Place, session: ClientSession) => Promise<T>, options?: CallOptions): Promise<T>
  /** Runs a read where the data is, also while writes are held. A cursor is read within fn. */
  read<T> (fn: (at: Place) => T | Promise<T>, options?: CallOptions): Promise<T>
  /** Lets writes in flight end, and tells the controllers that the application is gone. */
  close (): Promise<void>
}

/** Registers the application and finds out where its data is. */
export function connect (options: Options): Promise<App>

/** Nothing was written: do it again. */
export class NotWrittenError extends Error {}
/** The write, or a part of it, may have been done or not. Look before it is done again. */
export class UnknownOutcomeError extends Error {}
/** For a callback to throw: what it looked for is not there. It has written nothing; otherwise the outcome is unknown if the data has moved. */
export class MovedError extends Error { constructor (what?: string) }
