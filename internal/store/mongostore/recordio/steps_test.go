package recordio_test

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestStepsOfFarSplits: one record becomes records of two fixed-name kinds. A read of what the target has
// of the group takes two steps over a distance: one collection chooses the time, and the other three are
// read at that time. The transaction with the group takes two more.
func TestStepsOfFarSplits(t *testing.T) {
	t.Parallel()
	const most = 2
	uri, name := mongotest.Database(t)
	e := storetest.EngineIn(t, uri, name)
	toks := storetest.TokensOf(e.Collection("f", "f", true), e.Collection("g", "g", true))
	group := func(version byte) record.GroupWrite {
		return storetest.Group(version, storetest.Put(t, "f", bson.D{{Key: "_id", Value: "a"}}), storetest.Put(t, "g", bson.D{{Key: "_id", Value: "a/owner"}}))
	}
	e.Want(e.Apply(1, toks, group(1)), record.Applied)
	var read, applied int
	// A busy machine sends late, and so in another step. Longer steps forgive that.
	for i, length := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
		far := &storetest.Steps{Length: length}
		ns := storetest.OpenNamespace(t, conn.Config{URI: uri, Database: name}, far)
		req := record.ReadRequest{Tokens: toks, Guards: true, Select: []record.Selector{
			{Kind: "f", Key: record.StringKey("a")}, {Kind: "g", Key: record.StringKey("a/"), Prefix: true},
		}}
		var snap record.Snapshot
		look := func() (err error) { snap, err = ns.Read(t.Context(), req); return err }
		apply := func(g record.GroupWrite) func() error {
			return func() error {
				_, err := ns.Apply(t.Context(), record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{g}})
				return err
			}
		}
		// The first calls open connections, and look for the side collections.
		if err := errors.Join(look(), apply(group(1))()); err != nil {
			t.Fatal(err)
		}
		read = far.Of(t, look)
		if len(snap.Records) != 2 {
			t.Fatalf("%d records, want 2", len(snap.Records))
		}
		next := group(byte(i + 2)) //nolint:gosec // a handful
		for k := range next.Writes {
			for _, r := range snap.Records {
				if r.Kind == next.Writes[k].Kind {
					next.Writes[k].Seen = &r
				}
			}
		}
		applied = far.Of(t, apply(next))
		if read <= most && applied <= most {
			return
		}
	}
	t.Errorf("the read took %d steps and the transaction %d, want %d", read, applied, most)
}
