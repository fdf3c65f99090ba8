// Package lint tests lenses on sample records before an upgrade. Without these tests, the problems
// appear later, as parked records or as fields that a switch lost. A lens is a transformer in YAML
// that converts records of one API version to the next and back (Up and Down). A parked record is
// one that could not be transformed; it blocks the switch. The commands 'dbcontroller lens lint',
// 'lens diff' and 'lens try' use the package.
//
//   - Load reads lens files, reports all errors of all files, and links their references.
//   - Run transforms the records of a sample up and down again, in the engine's groups and through
//     the engine's transform.Direction. It reports broken laws, lost fields, failed records,
//     colliding keys and oversized documents.
//   - Compare reports the changes that a lens makes to a sample, path by path.
//   - Try transforms one group up and down again.
//   - Open reads a sample from a file: Extended JSON or BSON, compressed or not.
//
// The laws are the ones of package lawtest, which generates its records. Here each test starts with
// a sample record x, and y is Up(x). The record e is y with other values in the fields that only
// the new version has, as the application of the new version would set them. If a law needs another
// state of a record, it uses the previous record of the sample under the name of x.
//
// Memory is bounded. The package has to remember the records of groups with several records, and
// all new keys. If they are large, it stores them in temporary files and removes the files at the
// end. It holds a single group in memory, like the engine.
//
// The package opens no database and writes to none. A caller provides database records as a Source.
//
// It is not for users and may change with any version.
//
// Begin with Run in lint.go and the laws in laws.go.
package lint
