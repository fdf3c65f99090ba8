package recordtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var labelTests = []test{
	{"writes", labelWrites},
	{"what is there", labelThere},
	{"late", labelLate},
	{"absent", labelAbsent},
	{"fenced", labelFenced},
	{"shape", labelShape},
}

const labelField = "_label"

// labels returns a label with these prefixes.
func labels(begins ...string) record.Label {
	l := record.Label{Field: labelField}
	for _, b := range begins {
		l.Begins = append(l.Begins, []byte(b))
	}
	return l
}

// labelled returns a document with a label, or without one if label is empty.
func labelled(name, label string) bson.Raw {
	d := bson.D{{Key: "_id", Value: name}}
	if label != "" {
		d = append(d, bson.E{Key: labelField, Value: bson.Binary{Subtype: 0x80, Data: []byte(label)}})
	}
	return raw(d)
}

// stamped is a kind with labelled documents.
type stamped struct {
	*kind
	ns record.Namespace
}

func (k stamped) require(t *testing.T, l record.Label) {
	t.Helper()
	if err := k.ns.Require(t.Context(), []record.Token{k.tok}, l); err != nil {
		t.Fatalf("require: %v", err)
	}
}

func labelKind(t *testing.T, b *bench) stamped {
	t.Helper()
	if b.NoLabels {
		t.Skip("labels belong to what encrypts the documents")
	}
	return stamped{b.managed(t), b.Namespace}
}

// ways returns all operations that can write a document.
func (k stamped) ways(b *bench) map[string]func(ctx context.Context, d bson.Raw, name string) error {
	write := func(name string, d bson.Raw) record.GroupWrite {
		return group(1, record.Write{Kind: k.spec.Name, Key: record.StringKey(name), Doc: d})
	}
	ways := map[string]func(ctx context.Context, d bson.Raw, name string) error{
		"apply": func(ctx context.Context, d bson.Raw, name string) error {
			return refusal(b.Namespace.Apply(ctx, record.Batch{Tokens: tokens(k.kind), Epoch: 1, Groups: []record.GroupWrite{write(name, d)}}))
		},
		"load": func(ctx context.Context, d bson.Raw, name string) error {
			return refusal(b.Namespace.Load(ctx, record.Batch{Tokens: tokens(k.kind), Epoch: 1, Groups: []record.GroupWrite{write(name, d)}}))
		},
	}
	if b.Client == nil {
		return ways
	}
	m := func(d bson.Raw, name string) record.Mutation {
		return record.Mutation{Kind: k.spec.Name, Key: record.StringKey(name), Doc: d}
	}
	ways["put"] = func(ctx context.Context, d bson.Raw, name string) error {
		return b.Client.Write(ctx, tokens(k.kind), []record.Mutation{m(d, name)})
	}
	ways["create"] = func(ctx context.Context, d bson.Raw, name string) error {
		create := m(d, name)
		create.Absent = true
		return b.Client.Write(ctx, tokens(k.kind), []record.Mutation{create})
	}
	// A transaction must check each of its documents.
	ways["together"] = func(ctx context.Context, d bson.Raw, name string) error {
		return b.Client.Write(ctx, tokens(k.kind), []record.Mutation{m(d, name), m(nil, name+" beside")})
	}
	// CreateOnce is another path to a new document.
	if once, ok := b.Client.(record.OnceClient); ok {
		ways["once"] = func(ctx context.Context, d bson.Raw, name string) error {
			_, err := once.CreateOnce(ctx, tokens(k.kind), "label "+name, []record.Record{{Kind: k.spec.Name, Key: record.StringKey(name), Doc: d}})
			return err
		}
	}
	return ways
}

// refusal returns the error of a write that was not made.
func refusal(rs []record.Result, err error) error {
	if err == nil && rs[0].Outcome != record.Applied {
		err = errors.Join(errors.New(rs[0].Outcome.String()), rs[0].Err)
	}
	return err
}

// labelWrites checks that every operation refuses a document without the label with an error of the
// whole call. A Refused result would make the engine park a write that is only late. Labelled
// documents and deletes pass.
func labelWrites(t *testing.T, b *bench) {
	k := labelKind(t, b)
	k.require(t, labels("one", "two"))
	k.require(t, labels("one", "two"))
	for way, write := range k.ways(b) {
		for _, wrong := range []string{"", "on", "tone", "three"} {
			if err := write(t.Context(), labelled(way, wrong), way); !errors.Is(err, record.ErrLabel) {
				t.Errorf("%s of %q: %v, want ErrLabel", way, wrong, err)
			}
		}
		for _, right := range []string{"one", "two and more"} {
			if err := write(t.Context(), labelled(way+right, right), way+right); err != nil {
				t.Errorf("%s of %q: %v", way, right, err)
			}
		}
		// A delete needs no label.
		wantOutcomes(t, b.apply(t, tokens(k.kind), 1, group(2, record.Write{Kind: k.spec.Name, Key: record.StringKey(way + "one")})), record.Applied)
	}
	if n := len(k.all(t)); n != 2*len(k.ways(b)) {
		t.Errorf("there are %d records and tombstones, want %d", n, 2*len(k.ways(b)))
	}
}

// labelThere checks that an existing record without the label stays and can get it. Then it cannot
// lose it again.
func labelThere(t *testing.T, b *bench) {
	k := labelKind(t, b)
	old, now := labelled("a", "one"), labelled("a", "two")
	wantOutcomes(t, b.apply(t, tokens(k.kind), 1, group(1, record.Write{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: old})), record.Applied)
	k.require(t, labels("two"))
	// A swap may replace the unlabelled document.
	wantOutcomes(t, k.swap(t, swapOf("a", old, now)), record.Applied)
	if _, err := b.Namespace.Swap(t.Context(), k.tok, []record.Swap{swapOf("a", now, old)}); !errors.Is(err, record.ErrLabel) {
		t.Errorf("swapped back: %v, want ErrLabel", err)
	}
	err := refusal(b.Namespace.Apply(t.Context(), record.Batch{Tokens: tokens(k.kind), Epoch: 1, Groups: []record.GroupWrite{
		group(2, record.Write{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: old})}}))
	if !errors.Is(err, record.ErrLabel) {
		t.Errorf("applied over it: %v, want ErrLabel", err)
	}
	if got := k.all(t)[record.StringKey("a")].Doc; string(got) != string(now) {
		t.Errorf("it holds %s", got)
	}
}

// labelLate checks that writers with an outdated view of the database meet the present label, in
// any process.
func labelLate(t *testing.T, b *bench) {
	if b.Reopen == nil {
		t.Skip("the backend cannot be opened by a second process here")
	}
	k := labelKind(t, b)
	for i, step := range []string{"one", "two", "one", "three"} {
		for way, write := range k.ways(b) {
			late := fmt.Sprint(way, i, " late")
			if err := write(t.Context(), labelled(late, step), late); i > 0 && !errors.Is(err, record.ErrLabel) {
				t.Errorf("step %d: %s of %q under the label before: %v", i, way, step, err)
			}
		}
		// Another process changes the label behind this one's back.
		stamped{k.kind, b.Reopen()}.require(t, labels(step))
		for way, write := range k.ways(b) {
			name := fmt.Sprint(way, i)
			if err := write(t.Context(), labelled(name, step), name); err != nil {
				t.Errorf("step %d: %s of %q: %v", i, way, step, err)
			}
		}
	}
}

// labelAbsent checks that a label may also demand that documents have none.
func labelAbsent(t *testing.T, b *bench) {
	k := labelKind(t, b)
	none := record.Label{Field: labelField, Absent: true}
	k.require(t, none)
	write := k.ways(b)["apply"]
	if err := write(t.Context(), labelled("a", "one"), "a"); !errors.Is(err, record.ErrLabel) {
		t.Errorf("with one: %v, want ErrLabel", err)
	}
	if err := write(t.Context(), labelled("a", ""), "a"); err != nil {
		t.Errorf("with none: %v", err)
	}
	// Both forms are allowed during a change from one to the other.
	none.Begins = labels("one").Begins
	k.require(t, none)
	for _, l := range []string{"", "one"} {
		if err := write(t.Context(), labelled("b"+l, l), "b"+l); err != nil {
			t.Errorf("with %q: %v", l, err)
		}
	}
}

// labelFenced checks that a label stays through a fence. An old token cannot set another label.
func labelFenced(t *testing.T, b *bench) {
	k := labelKind(t, b)
	k.require(t, labels("one"))
	before := k.fence(t)
	// A process that slept through a fence must not change the label.
	if err := b.Namespace.Require(t.Context(), []record.Token{before}, labels("two")); !errors.Is(err, record.ErrFenced) {
		t.Errorf("by a stale token: %v, want ErrFenced", err)
	}
	write := k.ways(b)["apply"]
	if err := write(t.Context(), labelled("a", "two"), "a"); !errors.Is(err, record.ErrLabel) {
		t.Errorf("after a fence: %v, want ErrLabel", err)
	}
	if err := write(t.Context(), labelled("a", "one"), "a"); err != nil {
		t.Errorf("after a fence: %v", err)
	}
}

// labelShape checks that a label is not part of a kind's shape, because the next version takes over
// the shape.
func labelShape(t *testing.T, b *bench) {
	k := labelKind(t, b)
	k.require(t, labels("one"))
	info, err := b.Namespace.Describe(t.Context(), k.spec, k.tok.Name)
	if err != nil || len(info.Shape.Options) > 0 {
		t.Errorf("its options are %s, %v", info.Shape.Options, err)
	}
}
