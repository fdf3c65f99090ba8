// Package recordtest is the conformance suite of package record: what a backend
// promises, as tests that know nothing of any backend. A backend's own test calls
// Exercise, and every backend passes the same suite, the one in memory included.
//
//	recordtest.Exercise(t, func(t *testing.T) recordtest.Backend {
//		return recordtest.Backend{Namespace: open(t)}
//	})
//
// Optional abilities are fields of Backend; a part of the suite whose ability is not
// there is left out and logs that. Every random choice comes from a seed that
// a failure prints; RECORDTEST_SEED repeats it.
//
// It does not test speed, nor what happens when servers die: those tests belong to the
// backends and to the integration folder.
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

// Factory makes a fresh, empty namespace, and cleans up with t.
type Factory func(t *testing.T) Backend

// Backend is what is tested.
type Backend struct {
	Namespace record.Namespace
	// Client is a service's way to the managed kinds of Namespace. Nil leaves out what
	// needs one.
	Client record.Client
	// Reopen opens the same namespace anew, as another process would. Optional.
	Reopen func() record.Namespace
	// App acts as the application of fixed-name kinds. Nil: the backend has none.
	App App
	// TextKeys: records of fixed-name kinds have texts as their _id, and nothing else.
	TextKeys bool
	// NoIndexes: the backend has no unique indexes.
	NoIndexes bool
	// NoOptions: its collections have no validators.
	NoOptions bool
	// NoLateIndexes: an index cannot be declared over fields of records that are there.
	NoLateIndexes bool
	// NoLabels: they belong to what is in front of the database, which encrypts.
	NoLabels bool
	// MaxDocument is how many bytes the largest document has. 0: 16 MiB, as in MongoDB.
	MaxDocument int
	// NoMaxKey: the database itself loses sight of a record whose _id is MaxKey, and back,
	// while the suite runs. Scans are tried without such a record.
	NoMaxKey bool
	// LoseHistory makes all positions up to now unable to be resumed. Optional.
	LoseHistory func(t *testing.T)
	// SeveralLogs: transactions are in several logs, so that what one has changed may come in
	// several batches.
	SeveralLogs bool
	// Leftovers lists everything that the namespace holds physically. When all kinds were
	// dropped it must be empty. Optional.
	Leftovers func(t *testing.T) []string
}

// App is an existing application that reaches collections directly, by name and without
// a token, and knows nothing of guards.
type App interface {
	// Insert fails where the _id is taken.
	Insert(ctx context.Context, name string, doc bson.Raw) error
	// Put replaces the document or inserts it.
	Put(ctx context.Context, name string, doc bson.Raw) error
	// Delete removes the document; an absent one is fine.
	Delete(ctx context.Context, name string, id bson.RawValue) error
	// Documents returns all documents.
	Documents(ctx context.Context, name string) ([]bson.Raw, error)
}

// test is one statement about a backend.
type test struct {
	name string
	run  func(t *testing.T, b *bench)
}

// topic is a part of the suite.
type topic struct {
	name  string
	tests []test
}

// Exercise runs the suite. Each topic has a namespace of its own and runs next to the
// others; the tests of a topic use kinds of their own in it.
func Exercise(t *testing.T, f Factory) { ExerciseTopics(t, f) }

// ExerciseTopics runs the topics of the suite with the given names, all if none is given:
// for a backend that passes the whole suite in one setting and is to be seen in another.
func ExerciseTopics(t *testing.T, f Factory, only ...string) {
	topics := []topic{
		{"scan", scanTests},
		{"read", readTests},
		{"apply", applyTests},
		{"converge", convergeTests},
		{"load", loadTests},
		{"changes", changesTests},
		{"fence", fenceTests},
		{"fixed", fixedTests},
		{"provision", provisionTests},
		{"indexes", indexTests},
		{"client", clientTests},
		{"swap", swapTests},
		{"label", labelTests},
		{"once", onceTests},
		{"marker", markerTests},
	}
	var checked sync.Once
	for _, name := range only {
		if !slices.ContainsFunc(topics, func(topic topic) bool { return topic.name == name }) {
			t.Fatalf("the suite has no topic %q", name)
		}
	}
	for _, topic := range topics {
		if len(only) > 0 && !slices.Contains(only, topic.name) {
			continue
		}
		t.Run(topic.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, f, &checked)
			for _, tt := range topic.tests {
				t.Run(tt.name, func(t *testing.T) { tt.run(t, b) })
			}
		})
	}
}

// ExerciseConvergence runs only the tests of applying under many appliers, which hold
// whatever errors and lost acknowledgements a fault injector adds to Apply and Load.
func ExerciseConvergence(t *testing.T, f Factory) {
	b := setup(t, f, &sync.Once{})
	for _, tt := range convergeTests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, b) })
	}
}

// limit bounds each wait of a test; it is reached only by a failure.
const limit = 3 * time.Minute

// random returns a generator that a failure lets one repeat.
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
