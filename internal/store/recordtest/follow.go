package recordtest

import (
	"context"
	"slices"
	"testing"

	"dbcontroller.dev/record"
)

// follow opens a stream of Watch. The end of the test closes it.
func (b *bench) follow(t *testing.T, from record.Position, ks ...*kind) record.Stream {
	t.Helper()
	var specs []record.KindSpec
	for _, k := range ks {
		specs = append(specs, k.spec)
	}
	s, err := b.Namespace.Watch(t.Context(), from, specs)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	// The test's context has ended when cleanups run.
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close stream: %v", err)
		}
	})
	return s
}

// next returns batches until enough returns true for all changes so far.
func next(t *testing.T, s record.Stream, enough func([]record.Change) bool) (all []record.Change, batches []record.ChangeBatch) {
	t.Helper()
	ctx := bounded(t)
	for {
		b, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("next after %d changes (%v): %v", len(all), tail(all), err)
		}
		checkBatch(t, b)
		all = append(all, b.Changes...)
		batches = append(batches, b)
		// A batch may end anywhere between commits, so look at all changes so far.
		if enough(all) {
			return all, batches
		}
	}
}

func checkBatch(t *testing.T, b record.ChangeBatch) {
	t.Helper()
	if b.Pos.IsZero() {
		t.Error("a batch without a position")
	}
	if (b.Wall == 0) != (len(b.Changes) == 0) {
		t.Errorf("%d changes with wall clock %d", len(b.Changes), b.Wall)
	}
	for _, c := range b.Changes {
		if (c.Key == "") == (c.Marker == "") || c.Kind == "" {
			t.Errorf("change %+v is neither a key nor a marker", c)
		}
	}
}

func tail(cs []record.Change) []record.Change { return cs[max(0, len(cs)-5):] }

// reached is a condition for next: a change of this key.
func reached(k *kind, name string) func([]record.Change) bool {
	return func(cs []record.Change) bool {
		return slices.ContainsFunc(cs, func(c record.Change) bool { return c.Kind == k.spec.Name && c.Key == record.StringKey(name) })
	}
}

func marked(k *kind, marker string) func([]record.Change) bool {
	return func(cs []record.Change) bool {
		return slices.ContainsFunc(cs, func(c record.Change) bool { return c.Kind == k.spec.Name && c.Marker == marker })
	}
}

// quiet reads until an empty batch and returns the changes before it.
func quiet(t *testing.T, s record.Stream) []record.Change {
	t.Helper()
	ctx := bounded(t)
	var all []record.Change
	for {
		b, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		checkBatch(t, b)
		all = append(all, b.Changes...)
		if len(b.Changes) == 0 {
			return all
		}
	}
}

// show formats changes for comparison: "+a" was put, "-a" deleted. It shows a direct repetition
// once, because delivery is at least once.
func show(ks map[string]string, cs []record.Change) []string {
	var out []string
	for _, c := range cs {
		s := "+"
		if c.Delete {
			s = "-"
		}
		s += ks[c.Kind] + c.Key.String()
		if c.Marker != "" {
			s = "=" + ks[c.Kind] + c.Marker
		}
		if len(out) == 0 || out[len(out)-1] != s {
			out = append(out, s)
		}
	}
	return out
}

// write commits one client write. A negative n deletes.
func (k *kind) write(t *testing.T, name string, n int) {
	t.Helper()
	if err := k.b.Client.Write(t.Context(), tokens(k), []record.Mutation{k.mutation(name, n)}); err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
}

func (k *kind) mutation(name string, n int) record.Mutation {
	w := k.set(name, n)
	return record.Mutation{Kind: w.Kind, Key: w.Key, Doc: w.Doc}
}

// distinct returns changes without repetitions.
func distinct(cs []record.Change) map[record.Change]bool {
	seen := map[record.Change]bool{}
	for _, c := range cs {
		seen[c] = true
	}
	return seen
}
