package region_test

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

// TestMissing: clients delete a record that its new owner has lost, or take it back, and do nothing else.
func TestMissing(t *testing.T) {
	t.Parallel()
	missing := region.Move{Step: region.Missing, Region: "eu", ID: "v1.1.i", Nonce: "n"}
	if missing.Owns() || region.ParseMove(missing.String()) != missing {
		t.Errorf("%s is read as %+v", missing, region.ParseMove(missing.String()))
	}
	for name, c := range map[string]struct {
		doc  bson.D // nil: a delete
		asia bool   // asia owns a record of that name
		want string
	}{
		"delete":                         {want: "<nil>"},
		"take back":                      {doc: book("b", "us"), want: "<nil>"},
		"take back what asia has":        {doc: book("b", "us"), asia: true, want: "NOT_OWNER asia"},
		"change":                         {doc: append(book("b", "eu"), bson.E{Key: "payload", Value: "x"}), want: "MOVING eu"},
		"move on":                        {doc: book("b", "asia"), want: "MOVING eu"},
		"change without naming a region": {doc: book("b", ""), want: "MOVING eu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, data := moveWorld(t)
			putMoved(t, data, "b", "us", "eu", missing)
			if c.asia {
				putMoved(t, data, "b", "asia", "asia", region.Move{})
			} else if _, err := s.Get(vrunner.Changing(t.Context()), "books", "b"); err != nil {
				t.Errorf("a read before a change: %v", err)
			}
			m := record.Mutation{Kind: "books", Key: record.StringKey("b"), Exists: true}
			if c.doc != nil {
				m.Doc = raw(t, c.doc)
			}
			if got := reasonOf(s.Alone().Write(t.Context(), []record.Mutation{m})); got != "MOVING eu" {
				t.Errorf("background work: %s", got)
			}
			if got := reasonOf(s.Write(t.Context(), []record.Mutation{m})); got != c.want {
				t.Errorf("it is answered with %s, want %s", got, c.want)
			}
			rec, err := data.Get(t.Context(), "books", "b")
			switch {
			case c.want != "<nil>":
				if got := moving["books"].MoveOf(rec.Doc); err != nil || got != missing {
					t.Errorf("it is %+v, %v", got, err)
				}
			case c.doc == nil:
				if !errors.Is(err, record.ErrNotFound) {
					t.Errorf("it is there: %v", err)
				}
			default:
				if got := moving["books"].MoveOf(rec.Doc); err != nil || got != (region.Move{}) {
					t.Errorf("it is %+v, %v", got, err)
				}
			}
		})
	}
	// Another region shows it, and sends writes to the one that has it.
	s, data := moveWorld(t)
	putMoved(t, data, "b", "eu", "us", region.Move{Step: region.Missing, Region: "us", ID: "v1.1.i", Nonce: "n"})
	if rec, err := s.Get(t.Context(), "books", "b"); err != nil || titles(t, []record.Record{rec})[0] != "b of us" {
		t.Errorf("the new owner shows %v, %v", rec, err)
	}
	if got := reasonOf(s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b"), Exists: true}})); got != "NOT_OWNER eu" {
		t.Errorf("the new owner answers %s", got)
	}
	if err := s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b"), Doc: raw(t, book("b", "us")), Absent: true}}); !errors.Is(err, record.ErrExists) {
		t.Errorf("the name is free: %v", err)
	}
}

// TestUnsettled: a record that has arrived is not deleted and does not move on while the old owner has its
// part of the move, which is told from a loss by the record alone. Other writes go on.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	const id, nonce = "v1.1.i", "n"
	for name, c := range map[string]struct {
		own, copied region.Move
		want        string // of a delete, and of the next move
	}{
		"the old owner has left":       {region.Move{Step: region.Arrived, Region: "eu", ID: id, Nonce: nonce}, region.Move{Step: region.Left, Region: "us", ID: id, Nonce: nonce}, "MOVING us"},
		"it says that we lost it":      {region.Move{Step: region.Arrived, Region: "eu", ID: id, Nonce: nonce}, region.Move{Step: region.Missing, Region: "us", ID: id, Nonce: nonce}, "MOVING us"},
		"it has left in another move":  {region.Move{Step: region.Arrived, Region: "eu", ID: id, Nonce: nonce}, region.Move{Step: region.Left, Region: "us", ID: id, Nonce: "other"}, "<nil>"},
		"it has not left":              {region.Move{Step: region.Arrived, Region: "eu", ID: id, Nonce: nonce}, region.Move{Step: region.Leaving, Region: "us", ID: "v1.2.i"}, "<nil>"},
		"the new owner has it already": {region.Move{Step: region.Leaving, Region: "eu", ID: id}, region.Move{Step: region.Arrived, Region: "us", ID: id, Nonce: nonce}, "MOVING eu"},
		"the new owner has reserved":   {region.Move{Step: region.Leaving, Region: "eu", ID: id}, region.Move{Step: region.Arriving, Region: "us", ID: id, Nonce: nonce}, "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, m := range map[string]record.Mutation{
				"delete":    {Exists: true},
				"next move": {Doc: raw(t, book("b", "asia"))},
			} {
				for _, alone := range []bool{false, true} {
					s, data := moveWorld(t)
					home := "us"
					if c.own.Step == region.Leaving {
						home = "eu"
					}
					putMoved(t, data, "b", "us", home, c.own)
					putMoved(t, data, "b", "eu", "us", c.copied)
					if alone && m.Doc != nil {
						continue // background work begins no moves
					}
					if alone {
						s = s.Alone()
					}
					m.Kind, m.Key = "books", record.StringKey("b")
					if got := reasonOf(s.Write(t.Context(), []record.Mutation{m})); got != c.want {
						t.Errorf("%s, in background work %t: %s, want %s", what, alone, got, c.want)
					}
				}
			}
			if c.own.Step != region.Arrived {
				return
			}
			s, data := moveWorld(t)
			putMoved(t, data, "b", "us", "us", c.own)
			putMoved(t, data, "b", "eu", "us", c.copied)
			err := s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b"), Doc: raw(t, append(book("b", "us"), bson.E{Key: "payload", Value: "x"}))}})
			if got := stateOf(t, data, "b"); err != nil || got != c.own {
				t.Errorf("another write: %v; the state is %+v", err, got)
			}
		})
	}
}
