package integration_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// TestLargeRecordMemory has the real binary copy, compare and follow records of 1 MiB and of
// nearly 16 MiB, of several kinds at once, and looks at the most memory that it ever held.
// While it stands still all of them change, so that it meets a backlog of them.
func TestLargeRecordMemory(t *testing.T) {
	t.Parallel()
	const (
		kinds  = 4 // one for each worker: a kind of few records is one range
		plenty = 60
		huge   = 2
		most   = 1300 << 20 // measured: 660 to 790 MiB, and 2,000 when groups are read without a bound
	)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	binary := built.path(t)
	names := make([]string, kinds)
	text := "\n"
	for i := range names {
		names[i] = fmt.Sprintf("large%d", i)
		text += fmt.Sprintf("- {from: %s, to: %s, lens: packages.yaml}\n", names[i], names[i])
	}
	s := newSystem(ctx, t, settings{copy: "{auto: true, workers: 4}", kinds: text})
	write := func(n int64) {
		t.Helper()
		for _, name := range names {
			for i := range plenty + huge {
				size := 1 << 20
				if i >= plenty {
					size = 159 << 20 / 10
				}
				doc := sized(t, packageDoc("v1", packageKey(i), n), size)
				if _, err := s.db["v1"].Collection(name).ReplaceOne(ctx, bson.D{doc[0]}, doc, options.Replace().SetUpsert(true)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	write(0)
	c := s.adopt(spawn(t, "controller", weighed(binary, []string{
		"run", "--config", s.config, "--id", "controller", "--api-listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0",
	}, s.env)))
	c.ready(ctx)
	var peaks []int64
	stage := func() { peaks = append(peaks, peakMemory(t, c.Pid())>>20) }
	s.awaitSync(ctx)
	stage()
	c.signal(ctx, syscall.SIGSTOP)
	write(1)
	c.signal(ctx, syscall.SIGCONT)
	for _, name := range names {
		s.awaitNumber(ctx, name, plenty+huge, 1)
	}
	s.awaitSync(ctx)
	stage()
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	stage()
	t.Logf("the most memory was %d MB after copy and comparison, %d after the backlog of changes, %d after the switch", peaks[0], peaks[1], peaks[2])
	if peak := peaks[2]; peak > most>>20 {
		t.Errorf("the controller held up to %d MB, want %d at most", peak, most>>20)
	}
	for _, name := range names {
		n, err := s.db["v2"].Collection(name).CountDocuments(ctx, bson.D{{Key: "n", Value: 1}, {Key: "schema", Value: 2}})
		if err != nil || n != plenty+huge {
			t.Errorf("%d records of %s are there: %v", n, name, err)
		}
	}
}

// awaitNumber waits until the hidden target of a kind has so many records of the n-th write.
func (s *system) awaitNumber(ctx context.Context, kind string, records, n int64) {
	s.t.Helper()
	eventually(ctx, s.t, "the changes of "+kind, func() error {
		d, err := s.record.Get(ctx)
		if err != nil {
			return err
		}
		ns, _ := d.Namespace("v2")
		k, _ := ns.Kind(kind)
		has, err := s.db["v2"].Collection(k.Physical).CountDocuments(ctx, bson.D{{Key: "n", Value: n}})
		if err == nil && has != records {
			err = fmt.Errorf("%d records are there", has)
		}
		return err
	})
}
