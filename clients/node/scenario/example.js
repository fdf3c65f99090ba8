// Calls example.js, the application that docs/application.md shows: integration.TestNodeExample
// writes a call to standard input, a line of JSON each, and reads what comes of it.
import { createInterface } from 'node:readline'
import * as shop from '../example.js'

for await (const line of createInterface({ input: process.stdin })) {
  const { call, of } = JSON.parse(line)
  let answer
  try {
    answer = { result: await shop[call](of) }
  } catch (err) {
    answer = { error: String(err) }
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
}
