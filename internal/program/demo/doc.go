// Package app is the demonstration. It moves live databases from v1 to v2 on one machine while
// clients write to them, and measures and checks the result.
//
// The demo finds or starts MongoDB, starts etcd, and runs two deployments:
//
//   - the sample services, with records in etcd in v1 and in MongoDB in v2, and two servers
//   - an existing application's collection in MongoDB, loaded with real records
//
// Each deployment has two controllers. The application connects to two proxies. All of these are
// processes of their own.
//
// Clients create, update, delete and read through both API versions. An application does the same
// with the plain driver and one connection string, that of the proxies. Nothing else in it knows of a
// switch: it uses only fields that keep their place. The data cover three transforms. One process
// record becomes several. Secrets change their key. A lens changes further fields of the
// application's documents, in a collection with a fixed name. Cells run the instances of some
// processes under the sample's reconciler; one cell crashes in each switch.
//
// The demo upgrades both deployments, lets traffic continue, and switches back and forth as often
// as requested. At the end it looks up the last acknowledged state of every key, through both API
// versions and in the database itself. It checks the instances on the cells. It compares all data
// through the transform, in both directions.
//
// One client writes each key, one operation after the other, and each operation has its own number.
// The expected state of a key is therefore exact. A write with an unknown outcome counts as failed,
// and its key may have either state.
//
// All figures are measured. Latency counts from the time that a write was due by its schedule, so
// that clients held up by a pause do not hide it.
//
// The package touches only databases of its own, with names that start with dbc_demo_. It leaves
// nothing behind unless requested. It does not own any part of a migration: it uses only interfaces
// of operators, servers and applications. Begin to read at Run.
//
// It is not for users and may change with any version.
package app
