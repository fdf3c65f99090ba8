// Package lint tries lenses on real records before anything is moved with them: what it
// finds here would otherwise be a parked record, or a field that is gone after a switch.
//
//   - Load reads lens files, with all errors of all files, and links their references.
//   - Run takes the records of a sample there and back, grouped as the engine groups them
//     and through the same transform.Direction, and reports which laws hold, what is lost,
//     what fails, which keys collide and which documents grow too large.
//   - Compare reports what a lens changes on a sample, path by path.
//   - Try shows one group's way there and back.
//   - Open reads a sample from a file: Extended JSON or BSON, compressed or not.
//
// The laws are those of package lawtest, which draws its records; here each starts at a
// record x of the sample. y is Up(x), and e is y with other values in the fields that
// only the new version has, as its application would set them. Where a law needs another
// state of the same record, that is the sample's record before it, under its name.
//
// Memory is bounded: what has to be remembered of a sample (the records of groups that
// have several, and the keys that were made) goes to temporary files when it is much,
// which are removed at the end. A single group is held whole, as the engine does.
//
// The package writes to no database and opens none: a sample from one is a Source of the
// caller.
//
// It is not for users and may change with any version.
package lint
