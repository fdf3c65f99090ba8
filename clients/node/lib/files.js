// Files that the application trusts: its token, and its memory.
import { readFileSync, statSync } from 'node:fs'

// Windows has no such modes.
const modes = process.platform !== 'win32'

/** The text of a file. A file that other users than its owner can write is refused. */
export function trusted (file) {
  const info = statSync(file) // of the target of a link: secrets in Kubernetes are links
  if (!info.isFile()) throw new Error(`${file} is no regular file`)
  if (modes && info.mode & 0o022) throw new Error(`${file} can be written by others than its owner: chmod go-w it`)
  return readFileSync(file, 'utf8')
}

/** The text of a file that this application wrote itself. A file of another user, except root, is refused as well. */
export function own (file) {
  const { uid } = statSync(file)
  if (modes && uid !== 0 && uid !== process.geteuid()) throw new Error(`${file} belongs to another user: remove it`)
  return trusted(file)
}

/** The texts of a certificate's files, by name; a file that is not named is left out. Only the certificate proves nothing by itself. */
export function readAll (files) {
  return Object.fromEntries(Object.entries(files).filter(([, file]) => file)
    .map(([name, file]) => [name, name === 'cert' ? readFileSync(file, 'utf8') : trusted(file)]))
}

/** Whether every user of the machine can read a file. */
export function exposed (file) {
  return modes && (statSync(file).mode & 0o004) !== 0
}
