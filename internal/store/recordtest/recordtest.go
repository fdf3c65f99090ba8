// Package recordtest is the conformance suite of package record. It tests the promises of a backend
// without knowledge of any backend. Each backend's own test calls Exercise. Every backend passes
// the same suite, including package memstore.
//
//	recordtest.Exercise(t, func(t *testing.T) recordtest.Backend {
//		return recordtest.Backend{Namespace: open(t)}
//	})
//
// Optional abilities are fields of Backend. If a backend lacks an ability, the suite skips the
// tests for it and logs that. Every random choice comes from a seed, which a failed test prints.
// Set RECORDTEST_SEED to repeat a run.
//
// Terms, as in package record: a kind is a collection. A managed kind belongs to our client alone,
// and a fixed-name kind to an application. A token names a kind physically. A fence invalidates
// earlier tokens. A guard is the source version that a target record was written from.
//
// The suite tests neither speed nor server failures. Those tests belong to the backends and to the
// integration folder. Begin to read in bench.go, which has the helpers, and then apply.go.
//
// It is not for users and may change with any version.
package recordtest

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Factory returns a new, empty namespace. It cleans up at the end of t.
type Factory func(t *testing.T) Backend

// Backend is a backend under test.
type Backend struct {
	Namespace record.Namespace
	// Client is a service's client for the managed kinds of Namespace. nil: tests with a client are
	// skipped.
	Client record.Client
	// Reopen opens the same namespace again, like another process. Optional.
	Reopen func() record.Namespace
	// App acts as the application of fixed-name kinds. nil: the backend has no such kinds.
	App App
	// TextKeys means that records of fixed-name kinds can only have strings as _id.
	TextKeys bool
	// NoIndexes means that the backend has no unique indexes.
	NoIndexes bool
	// NoOptions means that the collections of the backend have no validators.
	NoOptions bool
	// NoLateIndexes means that an index over fields of existing records cannot be declared.
	NoLateIndexes bool
	// NoLabels means that a layer in front of the database, which encrypts, uses the labels.
	NoLabels bool
	// MaxDocument is the size of the largest document in bytes. 0: 16 MiB, as in MongoDB.
	MaxDocument int
	// NoMaxKey means that the database itself may temporarily hide a record with the _id MaxKey
	// during the suite. Scan tests then use no such record.
	NoMaxKey bool
	// LoseHistory makes all positions up to now invalid for resuming. Optional.
	LoseHistory func(t *testing.T)
	// SeveralLogs means that a transaction may span several logs, so its changes may come in
	// several batches.
	SeveralLogs bool
	// Leftovers lists all physical content of the namespace. After all kinds are dropped, the list
	// must be empty. Optional.
	Leftovers func(t *testing.T) []string
}

// App is an existing application. It uses collections directly, by name and without a token, and
// does not know about guards.
type App interface {
	// Insert adds a document. It fails if the _id exists.
	Insert(ctx context.Context, name string, doc bson.Raw) error
	// Put replaces the document or inserts it.
	Put(ctx context.Context, name string, doc bson.Raw) error
	// Delete removes a document. An absent document is no error.
	Delete(ctx context.Context, name string, id bson.RawValue) error
	// Documents returns all documents.
	Documents(ctx context.Context, name string) ([]bson.Raw, error)
}

// test checks one statement about a backend.
type test struct {
	name string
	run  func(t *testing.T, b *bench)
}

// topic is a part of the suite, with a namespace of its own.
type topic struct {
	name  string
	tests []test
	// alone topics run first and one at a time: fences of the other topics end transactions of the same
	// server that block them. On a busy machine a large transaction would never get through.
	alone bool
}

// Exercise runs the suite. Topics run in parallel, each in a namespace of its own. The tests of a
// topic use kinds of their own in it.
func Exercise(t *testing.T, f Factory) { ExerciseTopics(t, f) }

// ExerciseTopics runs the named topics of the suite, or all if no name is given. It serves a
// backend that passes the whole suite in one configuration and needs only parts in another.
func ExerciseTopics(t *testing.T, f Factory, only ...string) {
	topics := []topic{
		{name: "commits", tests: commitTests, alone: true},
		{name: "scan", tests: scanTests},
		{name: "read", tests: readTests},
		{name: "apply", tests: applyTests},
		{name: "converge", tests: convergeTests},
		{name: "load", tests: loadTests},
		{name: "changes", tests: changesTests},
		{name: "fence", tests: fenceTests},
		{name: "fixed", tests: fixedTests},
		{name: "provision", tests: provisionTests},
		{name: "indexes", tests: indexTests},
		{name: "client", tests: clientTests},
		{name: "swap", tests: swapTests},
		{name: "label", tests: labelTests},
		{name: "once", tests: onceTests},
		{name: "marker", tests: markerTests},
		{name: "forget", tests: forgetTests},
	}
	var checked sync.Once
	for _, name := range only {
		// A misspelled name must not silently skip its tests.
		if !slices.ContainsFunc(topics, func(topic topic) bool { return topic.name == name }) {
			t.Fatalf("the suite has no topic %q", name)
		}
	}
	for _, topic := range topics {
		if len(only) > 0 && !slices.Contains(only, topic.name) {
			continue
		}
		t.Run(topic.name, func(t *testing.T) {
			if !topic.alone {
				t.Parallel()
			}
			// A namespace for each topic lets topics run in parallel.
			b := setup(t, f, &checked)
			for _, tt := range topic.tests {
				t.Run(tt.name, func(t *testing.T) { tt.run(t, b) })
			}
		})
	}
}

// ExerciseConvergence runs only the tests with many appliers. They pass with any errors and lost
// acknowledgements that a fault injector adds to Apply and Load.
func ExerciseConvergence(t *testing.T, f Factory) {
	b := setup(t, f, &sync.Once{})
	for _, tt := range convergeTests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, b) })
	}
}

// limit is the maximum duration of each wait in a test. Only a failure reaches it.
const limit = 3 * time.Minute

// random returns a generator with a seed that a failed test prints.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("RECORDTEST_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with RECORDTEST_SEED=%d", seed)
		}
	})
	h := fnv.New64()
	_, _ = h.Write([]byte(t.Name())) // a hash never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
