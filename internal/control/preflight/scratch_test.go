package preflight

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
)

// TestScratchShowsWhatWasWritten, also where reads may be older than the latest write: a proof
// would find differences that are none.
func TestScratchShowsWhatWasWritten(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ns := memstore.NewCluster(memstore.Options{Lag: 3}).Open("test")
	kind := record.KindSpec{Name: "items"}
	s, err := makeScratch(ctx, ns, newPrefix(proofPrefix), []scratchKind{{kind: "items", spec: kind}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(3) {
		key := record.StringKey("a")
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "a"}, {Key: "n", Value: i}})
		if err != nil {
			t.Fatal(err)
		}
		batch := record.Batch{Epoch: uint64(1 + i), Groups: []record.GroupWrite{{Group: "a", Writes: []record.Write{{Kind: "items", Key: key, Doc: doc}}}}}
		if res, err := s.apply(ctx, batch); err != nil || res[0].Outcome != record.Applied {
			t.Fatal(res, err)
		}
		found, err := s.all(ctx, []record.KindSpec{kind})
		if err != nil || len(found) != 1 || string(found[0].Doc) != string(doc) {
			t.Errorf("a scan after write %d: %v, %v", i, found, err)
		}
		snap, err := s.Read(ctx, record.ReadRequest{Select: []record.Selector{{Kind: "items", Key: key}}})
		if err != nil || len(snap.Records) != 1 || string(snap.Records[0].Doc) != string(doc) {
			t.Errorf("a read after write %d: %v, %v", i, snap, err)
		}
	}
}

// leaving is a namespace whose caller goes while a server makes a collection, which it then does
// all the same, a while later.
type leaving struct {
	Space
	leave func()
	later sync.WaitGroup
	swept chan struct{}
}

func (l *leaving) Provision(ctx context.Context, kind record.KindSpec, name string) (tok record.Token, err error) {
	l.leave()
	made := make(chan struct{})
	l.later.Go(func() {
		defer close(made)
		select { // a sweep that does not wait for it comes first
		case <-l.swept:
		case <-time.After(50 * time.Millisecond):
		}
		tok, err = l.Space.Provision(context.WithoutCancel(ctx), kind, name)
	})
	select {
	case <-made:
		return tok, err
	case <-ctx.Done():
		return record.Token{}, ctx.Err()
	}
}

func (l *leaving) Sweep(ctx context.Context, prefix string) error {
	err := l.Space.Sweep(ctx, prefix)
	select {
	case l.swept <- struct{}{}:
	default:
	}
	return err
}

// TestScratchWhoseCallerLeaves leaves nothing behind, although the server goes on with what it was
// asked to make.
func TestScratchWhoseCallerLeaves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	inner := memstore.NewCluster(memstore.Options{}).Open("test")
	ns := &leaving{Space: inner, leave: cancel, swept: make(chan struct{})}
	p := &plan{report: &pb.PlanReport{}}
	kinds := []scratchKind{{kind: "items", spec: record.KindSpec{Name: "items"}}}
	err := p.inScratch(ctx, "copy", ns, "v2", kinds, func(ctx context.Context, _ *scratch) error { return ctx.Err() })
	ns.later.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a plan without its caller ended with %v", err)
	}
	if names := inner.Names(); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}
