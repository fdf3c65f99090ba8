// A file with the location that was open last, and with the identities that its collections had.
// The location alone would not do: the version may have been retired since, and its names belong
// to others. A collection that still bears its name and its identity is the one that the
// application may write, or one whose fence refuses it.
import { randomBytes } from 'node:crypto'
import { open, rename, rm } from 'node:fs/promises'
import { own } from './files.js'

const format = 1

/** The identities of a location's collections; one that is a view, or is not there, has none. */
export async function identities (client, location) {
  const ids = {}
  for (const k of location.kinds) {
    const id = await identityOf(client, k)
    if (id) ids[k.kind] = id
  }
  return ids
}

/** The UUID of a collection; empty for a view, and for one that is missing. */
export async function identityOf (client, { database, collection }) {
  // From the primary: names on a secondary may be those from before a switch.
  const db = client.db(database, { readPreference: 'primary' })
  const [found] = await db.listCollections({ name: collection }, { readPreference: 'primary' }).toArray()
  return found?.type === 'collection' && found.info?.uuid ? found.info.uuid.toString('hex') : ''
}

/** Replaces the file at once: who reads it sees the old one or the new one. */
export async function write (file, deployment, location, ids) {
  const temporary = `${file}.${process.pid}.${randomBytes(8).toString('hex')}`
  // A file or a link of this name is not ours, and is not written to.
  const out = await open(temporary, 'wx', 0o600)
  try {
    try {
      await out.writeFile(JSON.stringify({ format, deployment, location, identities: ids }))
      await out.sync()
    } finally {
      await out.close()
    }
    await rename(temporary, file)
  } catch (err) {
    await rm(temporary, { force: true })
    throw err
  }
}

/** Whose memory a file is; empty where there is none, or none that can be read. */
export async function deploymentOf (file) {
  try {
    return file ? JSON.parse(own(file)).deployment : ''
  } catch {
    return ''
  }
}

/** The location of the file, if the collections are still where it says. */
export async function recall (file, deployment, clientAt) {
  if (!file) throw new Error('nothing is remembered, for no file is configured')
  let text, was
  try {
    text = own(file)
  } catch (err) {
    throw new Error(`remember where the data is: ${err.code ? `${err.code} (${file})` : err.message}`)
  }
  try {
    was = JSON.parse(text)
  } catch {
    throw new Error(`remember where the data is: the file is not readable (${file})`)
  }
  if (was?.format !== format || was.location?.state !== 'OPEN' || !Array.isArray(was.location.kinds)) {
    throw new Error(`${file} is no memory of an application: remove it`)
  }
  if (deployment && was.deployment !== deployment) throw new Error(`${file} is of another deployment: give another file`)
  const now = await identities(await clientAt(was.location), was.location)
  const same = was.location.kinds.every(k => now[k.kind] && now[k.kind] === was.identities?.[k.kind])
  if (!same) throw new Error(`${file}: the data is not where it was: a controller has to be reached`)
  return { ...was.location, epoch: '0', revision: '0' } // whatever a controller says is newer
}
