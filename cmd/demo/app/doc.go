// Package app is the demonstration: it does the main job for real, on one machine, and measures it: a live
// database moves from v1 to v2 while clients write to it.
//
// It finds or starts MongoDB, starts etcd, loads real records as an existing
// application's collection, and runs two deployments: that of the sample services, whose
// records are in etcd in v1 and in MongoDB in v2, with two servers, and that of the application's
// collection in MongoDB, each with two controllers, all processes of their own. Clients then
// create, update, delete and read through both API versions, and an application does so with
// the plain driver, following the Deployment API as any application would: processes, of which
// one record becomes several; secrets, whose key changes; and the application's documents,
// which a lens changes in a collection of a fixed name. Cells run the instances of some
// processes, which the reconciler of the sample keeps: one of them crashes in each switch.
// Both upgrades begin, switch, and traffic goes on; then it goes back and forth, as often as is
// asked for. At the end every key's last acknowledged state is looked up through both API
// versions and in the database itself, what must run is looked up in the cells, and all data is
// compared through the transform, both ways.
//
// Each key is written by one client alone, one operation after another, and each
// operation has a number of its own, so that what a key must hold is known exactly. A
// write whose outcome is unknown counts as failed, and its key may hold either state.
//
// All figures are measured. Write latencies count from the moment at which the write was
// due by its schedule, not from when a client got round to sending it, so that a pause is
// not hidden by the clients that it holds up.
//
// The package touches only databases of its own, whose names begin with dbc_demo_, and
// leaves nothing behind unless asked to. It does not decide how anything is moved; it only
// uses what operators, servers and applications use.
//
// It is not for users and may change with any version.
package app
