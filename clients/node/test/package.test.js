// The package as a user gets it: packed, and installed into a folder of its own, where it is
// compiled against and run. Nothing is fetched.
import test from 'node:test'
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import ts from 'typescript'
import { Deployment, controller } from './controller.js'

const run = promisify(execFile)
const here = fileURLToPath(new URL('..', import.meta.url))

// What is added to the package, or left out, is said here.
const contents = [
  'LICENSE', 'README.md', 'index.d.ts', 'index.js', 'lib/app.js', 'lib/collection.js', 'lib/controllers.js', 'lib/errors.js', 'lib/files.js', 'lib/memory.js', 'package.json'
]

// installed packs this folder and returns the folder of a user, and what the archive has.
async function installed (t) {
  const folder = await mkdtemp(path.join(tmpdir(), 'dbcontroller-client-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const npm = async (cwd, ...args) => (await run('npm', [...args, '--offline', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd })).stdout
  const [{ filename, files }] = JSON.parse(await npm(here, 'pack', '--json', '--pack-destination', folder))
  await writeFile(path.join(folder, 'package.json'), '{"private": true, "type": "module"}')
  // A user has a driver already; npm would fetch one.
  await npm(folder, 'install', '--legacy-peer-deps', path.join(folder, filename))
  const modules = path.join(folder, 'node_modules')
  await mkdir(path.join(modules, '@types'))
  for (const name of ['mongodb', '@types/node']) await symlink(path.join(here, 'node_modules', name), path.join(modules, name))
  await cp(path.join(here, 'test/typed.ts'), path.join(folder, 'typed.ts'))
  return { folder, files: files.map(f => f.path).sort() }
}

// compiled compiles typed.ts in a folder by the options of this one.
async function compiled (folder) {
  const { compilerOptions } = JSON.parse(await readFile(path.join(here, 'tsconfig.json'), 'utf8'))
  const { options, errors } = ts.convertCompilerOptionsFromJson(compilerOptions, folder)
  const program = ts.createProgram([path.join(folder, 'typed.ts')], options)
  const typed = program.getSourceFile(path.join(folder, 'typed.ts'))
  const declared = program.getSourceFile(path.join(folder, 'node_modules/@dbcontroller/client/index.d.ts'))
  assert.ok(declared, 'the package leads to no index.d.ts')
  // Of all others, as the driver's, it is not ours to say.
  for (const file of [typed, declared]) errors.push(...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file))
  errors.push(...program.getOptionsDiagnostics(), ...program.getGlobalDiagnostics())
  assert.equal(ts.formatDiagnostics(errors, { getCanonicalFileName: f => f, getCurrentDirectory: () => folder, getNewLine: () => '\n' }), '')
  const checker = program.getTypeChecker()
  const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(declared))
  const imported = typed.statements.filter(ts.isImportDeclaration)
    .filter(s => s.moduleSpecifier.text === '@dbcontroller/client')
    .flatMap(s => s.importClause.namedBindings.elements.map(e => e.name.text))
  const app = checker.getDeclaredTypeOfSymbol(exported.find(s => s.name === 'App'))
  return {
    names: exported.map(s => s.name).sort(),
    values: exported.filter(s => s.flags & ts.SymbolFlags.Value).map(s => s.name).sort(),
    ofApp: checker.getPropertiesOfType(app).map(s => s.name).sort(),
    imported: imported.sort(),
    javaScript: ts.transpileModule(typed.text, { compilerOptions: { target: options.target, module: ts.ModuleKind.ESNext } }).outputText
  }
}

// A MongoDB client of the same answers as the driver's, as far as typed.ts asks.
function orders () {
  const docs = new Map()
  const collection = {
    insertOne: async doc => { docs.set(doc._id, doc); return { acknowledged: true, insertedId: doc._id } },
    findOne: async ({ _id }) => docs.get(_id) ?? null
  }
  const session = { withTransaction: fn => fn() }
  return { db: () => ({ collection: () => ({ ...collection }) }), withSession: fn => fn(session) }
}

test('the package is what its types declare, where it is installed', async t => {
  const { folder, files } = await installed(t)
  assert.deepEqual(files, contents)
  // npm packs no link, so that the folder has a copy of the project's.
  const [license, ours] = await Promise.all([path.join(folder, 'node_modules/@dbcontroller/client'), path.join(here, '../..')].map(of => readFile(path.join(of, 'LICENSE'), 'utf8')))
  assert.equal(license, ours)
  const { names, values, ofApp, imported, javaScript } = await compiled(folder)
  assert.deepEqual(imported, names, 'typed.ts leaves out what index.d.ts declares')

  const from = name => import(pathToFileURL(path.join(folder, name)))
  const client = await from('node_modules/@dbcontroller/client/index.js')
  assert.deepEqual(Object.keys(client).sort(), values, 'index.js does not export what index.d.ts declares')
  for (const name of ofApp) assert.ok(name in client.App.prototype, `an App has no ${name}`)

  await writeFile(path.join(folder, 'typed.js'), javaScript)
  const { shop } = await from('typed.js')
  const c = await controller(t, new Deployment())
  assert.deepEqual(await shop([c.address], orders()), [
    'v1 dbc_v1 db1:27017 one', 'v1', '1', 'one', 'v1', 'same client',
    'MovedError: gone', 'MovedError: it is not there', 'NotWrittenError: nothing was written: the application was closed'
  ])
})
