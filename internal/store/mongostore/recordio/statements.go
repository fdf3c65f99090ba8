package recordio

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// statements holds writes of one verb on one collection, within a transaction.
type statements struct {
	verb   string // insert, update, delete
	place  wire.Place
	bypass bool // skip the collection's validator
	side   bool // the collection is a side collection
	list   []statement
}

// statement is one write.
type statement struct {
	owner int           // group
	id    bson.RawValue // of the record to update or delete
	write guardWrite    // not for a delete
	want  condition     // of the record to update or delete
	seen  bool          // the transaction has not read the record
}

func (s *statements) add(owner int, id bson.RawValue, w guardWrite, h held) {
	s.list = append(s.list, statement{owner, id, w, h.condition(s.side), h.seen})
}

// command returns the statements as a command of their verb. The caller releases it.
func (s *statements) command() *writeCommand {
	c := &writeCommand{verb: s.verb, place: s.place, bypass: s.bypass}
	for i := range s.list {
		st := &s.list[i]
		switch s.verb {
		case "delete":
			c.addDelete(st.owner, st.id)
		case "update":
			c.addReplace(st.owner, st.id, st.write)
		default:
			c.addInsert(st.owner, st.write)
		}
	}
	return c
}

// writeGroups writes whole groups, with one command for all writes if possible, and otherwise with
// one command for each collection and verb. Deletes come first, because they free the unique values
// that inserts need.
func (n *Records) writeGroups(ctx context.Context, j *job, groups []int, have state, how attempt) error {
	var all []*statements
	for _, kind := range j.kinds {
		all = append(all, j.statementsOf(kind, groups, have, how)...)
	}
	if n.combines(j, all) {
		return n.runCombined(ctx, all)
	}
	if trusts(all) {
		return errUnseen // only the answer to a bulkWrite counts all documents together
	}
	for _, s := range all {
		c := s.command()
		err := n.runWrites(ctx, c)
		c.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// statementsOf returns the writes of one kind, in the order deletes, updates, inserts.
func (j *job) statementsOf(kind string, groups []int, have state, how attempt) []*statements {
	t := j.targets[kind]
	bypass := t.fixed && (how.bypass || slices.Contains(how.moderate, t.Coll))
	side := wire.Place{Coll: conn.GuardsName(kind)}
	deletes := &statements{verb: "delete", place: t.Place, bypass: bypass}
	updates := &statements{verb: "update", place: t.Place, bypass: bypass}
	inserts := &statements{verb: "insert", place: t.Place, bypass: bypass}
	// No UUID here: the read of the kind's collection in this transaction already meets a fence.
	sideUpdates := &statements{verb: "update", place: side, side: true}
	sideInserts := &statements{verb: "insert", place: side, side: true}
	for _, g := range groups {
		p := &j.groups[g]
		guard := p.guard.Bytes()
		for i := range p.Writes {
			w := &p.Writes[i]
			if w.Kind != kind {
				continue
			}
			h := have[kind][w.Key]
			live := w.Doc != nil
			if t.fixed {
				id := w.Key.Value()
				entries := sideInserts
				if h.side {
					entries = sideUpdates
				}
				entries.add(g, id, guardWrite{side: true, id: id, guard: guard, tombstone: !live}, h)
			}
			// Managed documents carry the guard themselves; fixed-name documents must stay as they
			// are.
			write := guardWrite{doc: w.Doc, layout: p.layouts[i], id: w.Key.Value(), guard: guard, tombstone: !live}
			if t.fixed {
				write.guard = nil
			}
			// A tombstone of a fixed-name kind exists only in the side collection.
			stored := !t.fixed || live
			// A replacement that begins with a $ field would be read as an update; insert it
			// instead.
			stands := h // with its condition
			if t.fixed {
				stands.guard = record.Guard{} // which is in the side collection
			}
			anew := how.clear || write.layout.Dollar
			if h.data && (anew || !stored) {
				deletes.add(g, h.id, guardWrite{}, stands)
			}
			switch {
			case !stored:
			case h.data && !anew:
				if !live {
					write.id = h.id // keep the number type of the stored _id
				}
				updates.add(g, h.id, write, stands)
			default:
				inserts.add(g, bson.RawValue{}, write, stands)
			}
		}
	}
	all := []*statements{deletes, updates, inserts, sideUpdates, sideInserts}
	return slices.DeleteFunc(all, func(s *statements) bool { return len(s.list) == 0 })
}
