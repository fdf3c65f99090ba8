// Package vrunner runs the stack of the active version inside a server and replaces it at the flip.
// A stack is one version's HTTP handlers, background controllers and start data. The listener stays
// open during a switch, and most clients notice only latency.
//
// It also holds writes during a switch (the gate), and keeps reads, watches and streams going.
//
// Package dbcontroller runs a Runner for each server. A service itself uses only Store and its
// extensions, Subscription, Controller, and NewWatchHandler.
//
// # Vocabulary
//
// A deployment is one service in one region. It has one namespace for each version, such as v1 and
// v2. Each namespace holds kinds (collections) of records, and each record has a key. One version
// is active at a time. The Deployment, a record in etcd, says which. A switch makes another version
// active, and its last step is the flip. Each flip begins a new direction epoch.
//
// A token identifies the physical collection of a kind. Every command carries one. A fence makes
// the database refuse all earlier tokens. After the last rename of a switch the old namespace is
// sealed: no published token can read it until the flip.
//
// # The gate
//
// A write takes the state and its tokens together when it passes the gate. It uses these tokens
// until it ends. While the record of the deployment says SWITCHING, the gate holds new writes. Once
// the writes in flight have finished, the server acknowledges the hold. The gate opens again with
// the tokens of the version that is then active, and the held writes run on that version's stack.
// Past a limit (HoldCap, MaxHeld or MaxHeldBytes) the gate refuses a write with ErrHeld. The write
// had no effect, so the client can retry it.
//
// # Refusal by the database
//
// A server can miss the switch because it was paused or cut off from etcd. It then sends a stale
// token and gets record.ErrFenced. This error guarantees that the command had no effect, so the
// server runs the request again from its beginning, on the stack that is then active. The server
// never repeats a request that has already had an effect.
//
// # Reads
//
// Reads use the present name and the announced next name. While the old namespace is sealed they
// wait for the flip, at most HoldCap. So a switch makes reads neither fail nor return old data.
//
// # Watches
//
// View.Changes reports the records that are dirty, that is, may have changed. A handler subscribes,
// lists, and then reads each dirty record. All subscribers of a version share one change stream,
// which is open while a subscriber exists. It resumes at its position after failures and follows
// the version through every rename. A subscriber keeps a bounded number of names. If it exceeds the
// bound, or the database no longer has the history, the subscriber gets ErrLost and must list
// again.
//
// # Streams
//
// A streaming procedure passes no gate, does not count as a write in flight, and cannot write.
// Runner.Stream runs it for the active version and, after a flip, again for the next version.
// NewWatchHandler does this for a procedure that follows records, in front of the Runner. Its
// clients keep one open stream over the flip and receive only the differences.
//
// NewImportHandler serves a client-streaming procedure whose messages are writes of their own. It runs
// each message as a request through the Runner, so the stream goes on over flips and may be of any
// length. Without it, the Runner keeps a client's stream and runs it as one write.
//
// # Observers
//
// Stack.Observers follow the records of one API version. They run as streams do: a flip ends a run, and
// the next one is over the data that is active then.
//
// # Controllers
//
// Stack.Controllers are the background work of a version. They run while the version is active, and
// start only after a linearizable read of the record. When a switch holds writes, it ends their
// contexts and lets a write in progress finish. After the flip the next version's controllers
// start. After an abort the same ones start again.
//
// The switch does not wait for controllers. The next controllers wait at most 3 s for the previous
// ones. The Runner counts and logs a controller that does not stop, and its writes fail here
// and in the database. A run that ends with an error or a panic starts again after a pause.
// A controller runs on every server, or on one server that Config.Lead elects. The election only
// saves work. It grants no right to write.
//
// # Fixtures
//
// Stack.Fixtures are the records that a version starts with. A server creates them, together with a
// marker, in one transaction with the version's write tokens. It does so once the version is active
// and accepts writes. Therefore:
//
//   - A version that never became active has no fixtures.
//   - Only one of several servers creates them.
//   - A server with stale tokens creates none.
//   - They are created once in the life of the namespace. Later changes stay.
//
// Namespaces of one API version share their fixtures. When a version moves to another place, only
// the marker is created.
//
// Each server holds its requests until it has created the fixtures or seen the marker. After one
// second without success it lets requests through and continues to retry. It does not coordinate
// with requests on other servers. Such a request may write a record before the fixture exists, and
// that record stays as it is. Streams do not wait.
//
// # What this package does not own
//
// Safety does not depend on this package: the database refuses late writes whatever a server does.
// The Deployment decides which version is active. The package does not know what the handlers do.
//
// Begin to read at Runner.ServeHTTP, then gate and View.
package vrunner
