package recordio

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// This file writes groups without reading their guards once more. The caller has read them, for what
// the write was made from (record.Write.Seen). Each write is then conditional: a replacement or a
// delete selects the guard that was seen, and an insert fails if the record exists. The transaction
// ends without effect if one of them finds another state. The next one reads (attempt.trust). Over a
// distance this saves a round trip for each kind.

// errUnseen means that the target no longer holds what the caller has seen, or that it cannot be
// found out with the write.
var errUnseen = errors.New("the records have changed since they were read")

// seenState returns the state of the groups whose writes can be conditional, and the other groups.
// A group that would not be written belongs to the others: its outcome must come from a read.
func (n *Records) seenState(j *job, groups []int, how attempt) (state, []int) {
	have := make(state, len(j.kinds))
	if !how.trust || !j.joins || n.noBulkWrite.Load() {
		return have, groups
	}
	rest := make([]int, 0, len(groups))
	for _, g := range groups {
		seen := j.seenOf(g)
		if seen == nil || decide(&j.groups[g], seen, how) != record.Applied {
			rest = append(rest, g)
			continue
		}
		for kind, found := range seen {
			if have[kind] == nil {
				have[kind] = found
				continue
			}
			for key, h := range found {
				have[kind][key] = h
			}
		}
	}
	return have, rest
}

// seenOf returns what the caller has seen of a group, or nil if the writes cannot be conditional.
func (j *job) seenOf(g int) state {
	seen := make(state, len(j.kinds))
	p := &j.groups[g]
	for i := range p.Writes {
		w := &p.Writes[i]
		t := j.targets[w.Kind]
		if w.Seen == nil || t.mark != "" { // only a read finds the end of a mark
			return nil
		}
		h := held{seen: true, gone: w.Seen.Tombstone, guard: w.Seen.Guard, id: w.Key.Value()}
		there, live := w.Seen.Key != "", w.Doc != nil
		if t.fixed {
			h.data, h.side = there && !w.Seen.Tombstone, !w.Seen.Guard.IsZero()
			// Only a write to the kind's own collection carries its UUID, and meets a fence.
			if !h.data && !live {
				return nil
			}
		} else {
			h.data = there
			// Without a guard there is no condition. A tombstone keeps the type of a number in its
			// _id, which was not seen.
			if h.data && (w.Seen.Guard.IsZero() || !live && !exactID(h.id)) {
				return nil
			}
		}
		if seen[w.Kind] == nil {
			seen[w.Kind] = make(map[record.Key]held, len(p.Writes))
		}
		seen[w.Kind][w.Key] = h
	}
	return seen
}

// exactID reports whether equal values of this type have equal bytes.
func exactID(id bson.RawValue) bool {
	return slices.Contains([]bson.Type{bson.TypeString, bson.TypeObjectID, bson.TypeBinary}, id.Type)
}

// condition is what the guard of a stored document must be.
type condition struct {
	guard     []byte // nil: no condition
	tombstone bool
	side      bool // of a document of a side collection
}

// condition returns the condition for a document whose state was seen, and none for one that was read.
func (h held) condition(side bool) condition {
	if !h.seen || h.guard.IsZero() {
		return condition{}
	}
	return condition{h.guard.Bytes(), h.gone, side}
}

// appendTo appends the condition to a filter. Both forms of a guard are compared as a whole.
func (c condition) appendTo(dst []byte) []byte {
	switch {
	case c.guard == nil:
		return dst
	case c.side:
		return bsoncore.AppendBinaryElement(dst, "g", bson.TypeBinaryGeneric, c.guard)
	default:
		return wire.AppendGuard(dst, c.guard, c.tombstone)
	}
}

// trusts reports whether some statements write what was not read.
func trusts(all []*statements) bool {
	return slices.ContainsFunc(all, func(s *statements) bool {
		return slices.ContainsFunc(s.list, func(st statement) bool { return st.seen })
	})
}

// checkFound returns errUnseen if the answer to a bulkWrite does not count each document that the
// statements had to find. Those that were read are there, too.
func checkFound(raw bson.Raw, all []*statements) error {
	want := map[string]int64{}
	for _, s := range all {
		want[s.verb] += int64(len(s.list))
	}
	for verb, count := range map[string]string{"update": "nMatched", "delete": "nDeleted", "insert": "nInserted"} {
		found, ok := raw.Lookup(count).AsInt64OK()
		if !ok {
			return errCombined
		}
		if found != want[verb] {
			return errUnseen
		}
	}
	return nil
}
