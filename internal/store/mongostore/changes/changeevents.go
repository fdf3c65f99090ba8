package changes

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// This file maps the server's change events to changes and errors of a stream.

// event reads one event. ok reports whether to deliver change.
func (s *stream) event(raw bson.Raw, batch *record.ChangeBatch) (change record.Change, ok bool, err error) {
	if s.follower != nil {
		return s.followed(raw, batch)
	}
	var e struct {
		op, coll, to string
		uuid         string // collection UUID; empty for a view
		id           bson.RawValue
		description  bson.Raw
	}
	// One pass over the elements: a lookup for each field would scan the event each time.
	elems, err := raw.Elements()
	if err != nil {
		return change, false, fmt.Errorf("watch: %w", err)
	}
	for _, elem := range elems {
		v := elem.Value()
		switch elem.Key() {
		case "operationType":
			e.op, _ = v.StringValueOK()
		case "ns":
			e.coll = conn.LookupString(v, "coll")
		case "to":
			e.to = conn.LookupString(v, "coll")
		case "collectionUUID":
			_, data, _ := v.BinaryOK()
			e.uuid = string(data)
		case "documentKey":
			if doc, ok := v.DocumentOK(); ok {
				e.id = doc.Lookup("_id")
			}
		case "operationDescription":
			e.description, _ = v.DocumentOK()
		case "clusterTime":
			if t, i, ok := v.TimestampOK(); ok {
				s.at = bson.Timestamp{T: t, I: i}
			}
		case "wallTime":
			if ms, ok := v.DateTimeOK(); ok {
				batch.Wall = ms
			}
		}
	}
	// The pipeline lets only marks of write blocks through.
	if e.coll == conn.MarksCollection {
		return s.writeBlock(e.op, e.id)
	}
	kind, current := s.kindOf(e.coll)
	if away, ok := s.away[e.coll]; ok && e.uuid != "" && away != e.uuid || strings.HasPrefix(e.to, conn.AsidePrefix) {
		// The collection was created under the name of a kind that a fence moved away. Removing the
		// fence copies its documents into the kind, and those copies arrive as the kind's own
		// changes. The rest is for an operator.
		return change, false, nil
	}
	switch e.op {
	case "insert", "update", "replace", "delete":
		// Writes under a hidden name count as well: somebody may write by hand behind a fence. If
		// the switch aborts, the collection gets its name back, and these writes are the application's.
		if kind == "" {
			return change, false, nil
		}
		key, err := record.KeyOf(e.id)
		if err != nil {
			return change, false, fmt.Errorf("watch %s: %w", e.coll, err)
		}
		return record.Change{Kind: kind, Key: key, Delete: e.op == "delete"}, true, nil
	case "rename":
		if s.kinds[e.to] { // given back, or replaced by the kind's next collection
			delete(s.away, e.to)
		} else if s.kinds[e.coll] && physicalOf(e.to, e.coll) {
			s.away[e.coll] = e.uuid
		}
		return s.rename(e.coll, e.to)
	case "modify":
		// The collMod that sets a fence's validator is also the fence's marker.
		mark := conn.FenceMark(e.description)
		if kind == "" || !current || mark == "" {
			return change, false, nil
		}
		return record.Change{Kind: kind, Marker: mark}, true, nil
	case "drop":
		// A view has no UUID, and its drop loses no record.
		if kind == "" || !current || e.uuid == "" {
			return change, false, nil
		}
		// A fixed-name kind can continue with its next collection; a managed kind cannot.
		if s.kinds[kind] {
			return change, false, fmt.Errorf("watch: %w", &record.ReplacedError{Kind: kind, What: e.coll + " was dropped"})
		}
		return change, false, fmt.Errorf("watch: %w: collection %s was dropped; a collection recreated under its name is another collection: "+
			"restore it, or run 'dbcontroller recover'", record.ErrBroken, e.coll)
	case "reshardCollection":
		// Resharding keeps all documents but gives the collection another UUID.
		if !s.kinds[kind] || !current {
			return change, false, nil
		}
		return change, false, fmt.Errorf("watch: %w", &record.ReplacedError{Kind: kind, What: e.coll + " was moved or resharded, which recreates the collection"})
	case "dropDatabase", "invalidate":
		// The database had none of the kinds left: drops of the kinds arrive earlier.
		return change, false, fmt.Errorf("watch: %w: the stream was ended by %s", record.ErrHistoryLost, e.op)
	default:
		// Events about indexes, sharding and the like do not change records.
		return change, false, nil
	}
}

// writeBlock returns the marker of a write block. The mark is written once the block is in force.
func (s *stream) writeBlock(op string, id bson.RawValue) (record.Change, bool, error) {
	mark, ok := id.StringValueOK()
	kind, _, hidden := record.KindOfPhysical(mark)
	// Anybody can write to dbc_marks: accept only marks of kinds that are watched.
	if !ok || !hidden || !s.kinds[kind] || op == "delete" {
		return record.Change{}, false, nil
	}
	return record.Change{Kind: kind, Marker: mark}, true, nil
}

// rename distinguishes a fence from a rename that no engine can follow.
func (s *stream) rename(from, to string) (record.Change, bool, error) {
	fromKind, fromCurrent := s.kindOf(from)
	toKind, toCurrent := s.kindOf(to)
	switch {
	// A rename between names of one kind is an announced fence.
	case toKind != "" && (fromKind == toKind || physicalOf(to, toKind)):
		return record.Change{Kind: toKind, Marker: to}, true, nil
	// The application moved its collection away.
	case s.kinds[fromKind] && fromCurrent:
		return record.Change{}, false, fmt.Errorf("watch: %w", &record.ReplacedError{Kind: fromKind, What: from + " was renamed to " + to})
	case s.kinds[toKind] && toCurrent:
		return record.Change{}, false, fmt.Errorf("watch: %w", &record.ReplacedError{Kind: toKind, What: "another collection, " + from + ", was renamed to " + to})
	// No engine can follow a foreign rename of a managed kind's collection.
	case toKind != "" && toCurrent, fromKind != "" && fromCurrent:
		return record.Change{}, false, fmt.Errorf("watch: %w: %s was renamed to %s", record.ErrBroken, from, to)
	default:
		return record.Change{}, false, nil
	}
}

// kindOf returns the watched kind that a collection belongs or belonged to. current reports whether
// the collection is the kind's own by its name. A fixed-name kind has only one such name; its other
// names are hidden collections.
func (s *stream) kindOf(coll string) (kind string, current bool) {
	if fixed, ok := s.kinds[coll]; ok && fixed {
		return coll, true
	}
	kind, _, ok := record.KindOfPhysical(coll)
	if !ok {
		return "", false
	}
	fixed, ok := s.kinds[kind]
	if !ok {
		return "", false
	}
	return kind, !fixed
}

func physicalOf(name, kind string) bool {
	k, _, ok := record.KindOfPhysical(name)
	return ok && k == kind
}
