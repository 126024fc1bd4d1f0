// What readers of JavaScript make of a score file: types, nulls, metadata and conditions.
//
// npm install hyparquet@1.33.0 hyparquet-compressors@1.1.2 parquet-wasm@0.8.0 apache-arrow@21.2.0
// node score_readers.mjs scores.parquet

import { readFileSync } from 'node:fs'
import { tableFromIPC } from 'apache-arrow'
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from 'hyparquet'
import { compressors } from 'hyparquet-compressors'
import { readParquet } from 'parquet-wasm/node'

const path = process.argv[2]

const table = tableFromIPC(readParquet(readFileSync(path)).intoIPCStream())
console.log('parquet-wasm:', table.numRows, 'rows, keys', [...table.schema.metadata.keys()].join(', '))
for (const { name, type } of table.schema.fields) {
  console.log(`  ${name}: ${type}, ${table.getChild(name).nullCount} null`)
}

const file = await asyncBufferFromFile(path)
const { key_value_metadata: metadata } = await parquetMetadataAsync(file)
const rows = await parquetReadObjects({ file, compressors })
console.log('hyparquet:', rows.length, 'rows, keys', metadata.map(({ key }) => key).join(', '))
await parquetReadObjects({ file }).catch(({ message }) => console.log(`  alone: ${message}`))
for (const name of Object.keys(rows[0])) {
  const cells = rows.map(row => row[name])
  const known = cells.filter(cell => cell !== null)
  const types = [...new Set(known.map(cell => typeof cell))].join(' or ') || 'nothing'
  console.log(`  ${name}: ${types}, ${cells.length - known.length} null`)
}

const own = new Map(rows.map(row => [row.sample_id, row]))
const differing = [...table].filter(
  row => table.schema.fields.some(({ name }) => row[name] !== own.get(row.sample_id)[name])
)
console.log('rows that differ between both:', differing.length)
for (const filter of [{ rmd: { $gt: 0 } }, { rmd: { $gte: 0 } }, { rmd: { $lt: 1e9 } }]) {
  const found = await parquetReadObjects({ file, compressors, filter })
  const empty = found.filter(row => row.rmd === null).length
  console.log(`hyparquet, ${JSON.stringify(filter)}: ${found.length} rows, ${empty} without rmd`)
}
