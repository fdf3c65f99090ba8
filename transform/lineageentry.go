package transform

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

// A lineage kind has three sorts of entries. The prefix of the key tells them apart.
// docs/formats.md defines their form.

// descent is the entry of a source record: the group that it is part of in the target, and the
// group that it waits for because it could not be migrated there.
type descent struct {
	group, waits string
}

// family is the entry of a group: the source records that its target records were made from, the
// source records that wait to join it, and its target records. Each list is sorted.
type family struct {
	members, waiting, targets []ref
}

func (f family) empty() bool { return len(f.members)+len(f.waiting)+len(f.targets) == 0 }

// has reports whether a source record is a member.
func (f family) has(r ref) bool {
	_, found := slices.BinarySearchFunc(f.members, r, ref.compare)
	return found
}

func memberKey(r ref) record.Key { return entryKey("m", r) }
func targetKey(r ref) record.Key { return entryKey("t", r) }

func groupKey(group string) record.Key { return record.StringKey("g/" + spell(group)) }

func entryKey(prefix string, r ref) record.Key {
	return record.StringKey(prefix + "/" + url.PathEscape(r.kind) + "/" + spell(string(r.key)))
}

// spell encodes the name of a group or a key as unique text. It is readable where possible: a
// string key as its name, other text as it is, anything else in hexadecimal.
func spell(s string) string {
	// The last check keeps spell reversible: a key that does not come back equal is written in
	// another form.
	if n, ok := record.Key(s).Name(); ok && utf8.ValidString(n) && !strings.Contains(n, "\x00") && string(record.StringKey(n)) == s {
		return "=" + n
	}
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
		return "~" + s
	}
	return "#" + hex.EncodeToString([]byte(s))
}

func unspell(s string) (string, error) {
	if s == "" {
		return "", fmt.Errorf("lineage: empty name")
	}
	switch rest := s[1:]; s[0] {
	case '=':
		return string(record.StringKey(rest)), nil
	case '~':
		return rest, nil
	case '#':
		b, err := hex.DecodeString(rest)
		if err != nil {
			return "", fmt.Errorf("lineage: name %q: %w", s, err)
		}
		return string(b), nil
	default:
		return "", fmt.Errorf("lineage: name %q is of another form", s)
	}
}

const (
	fieldGroup   = "group"
	fieldWaits   = "waits"
	fieldMembers = "members"
	fieldWaiting = "waiting"
	fieldTargets = "targets"
)

// doc returns the entry of a member, or nil (a tombstone) if it is empty.
func (d descent) doc(r ref) bson.Raw {
	// A nil document is a tombstone. Its guard still refuses late writers.
	if d == (descent{}) {
		return nil
	}
	b := entry(memberKey(r))
	if d.group != "" {
		b = bsoncore.AppendStringElement(b, fieldGroup, spell(d.group))
	}
	if d.waits != "" {
		b = bsoncore.AppendStringElement(b, fieldWaits, spell(d.waits))
	}
	return closed(b)
}

// targetDoc returns the entry of a target record.
func targetDoc(r ref, group string) bson.Raw {
	return closed(bsoncore.AppendStringElement(entry(targetKey(r)), fieldGroup, spell(group)))
}

// doc returns the entry of a group, or nil (a tombstone) if it is empty.
func (f family) doc(group string) bson.Raw {
	if f.empty() {
		return nil
	}
	b := entry(groupKey(group))
	for _, list := range []struct {
		name string
		refs []ref
	}{{fieldMembers, f.members}, {fieldWaiting, f.waiting}, {fieldTargets, f.targets}} {
		if len(list.refs) > 0 {
			b = appendRefs(b, list.name, list.refs)
		}
	}
	return closed(b)
}

func entry(key record.Key) []byte {
	id := key.Value()
	return bsoncore.AppendValueElement([]byte{0, 0, 0, 0}, "_id", bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Value})
}

// closed completes a BSON document: it appends the final zero byte and sets the length.
func closed(b []byte) bson.Raw {
	b = append(b, 0)
	return bson.Raw(bsoncore.UpdateLength(b, 0, int32(len(b))))
}

// appendRefs appends records as {kind: [key, ...]}, which is short because a group has few kinds.
func appendRefs(b []byte, name string, refs []ref) []byte {
	at, b := bsoncore.AppendDocumentElementStart(b, name)
	for len(refs) > 0 {
		kind := refs[0].kind
		// refs is sorted by kind, so each kind gets one array.
		array, next := bsoncore.AppendArrayElementStart(b, kind)
		b = next
		n := 0
		for ; n < len(refs) && refs[n].kind == kind; n++ {
			id := refs[n].key.Value()
			b = bsoncore.AppendValueElement(b, fmt.Sprint(n), bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Value})
		}
		refs = refs[n:]
		b, _ = bsoncore.AppendArrayEnd(b, array) // fails only for a bad index
	}
	b, _ = bsoncore.AppendDocumentEnd(b, at)
	return b
}

// readDescent parses the entry of a member. A nil document gives the zero value, here and in the
// functions below.
func readDescent(doc bson.Raw) (d descent, err error) {
	if d.group, err = readName(doc, fieldGroup); err != nil {
		return d, err
	}
	d.waits, err = readName(doc, fieldWaits)
	return d, err
}

func readTarget(doc bson.Raw) (group string, err error) { return readName(doc, fieldGroup) }

func readName(doc bson.Raw, field string) (string, error) {
	v, err := doc.LookupErr(field)
	if doc == nil || err != nil {
		return "", nil
	}
	s, ok := v.StringValueOK()
	if !ok {
		return "", fmt.Errorf("lineage: %s is no string", field)
	}
	return unspell(s)
}

func readFamily(doc bson.Raw) (f family, err error) {
	if f.members, err = readRefs(doc, fieldMembers); err != nil {
		return f, err
	}
	if f.waiting, err = readRefs(doc, fieldWaiting); err != nil {
		return f, err
	}
	f.targets, err = readRefs(doc, fieldTargets)
	return f, err
}

func readRefs(doc bson.Raw, field string) (refs []ref, err error) {
	v, err := doc.LookupErr(field)
	if doc == nil || err != nil {
		return nil, nil
	}
	kinds, ok := v.DocumentOK()
	if !ok {
		return nil, fmt.Errorf("lineage: %s is no document", field)
	}
	elems, err := kinds.Elements()
	if err != nil {
		return nil, fmt.Errorf("lineage: %s: %w", field, err)
	}
	for _, e := range elems {
		list, ok := e.Value().ArrayOK()
		if !ok {
			return nil, fmt.Errorf("lineage: %s of %s is no array", field, e.Key())
		}
		keys, err := list.Values()
		if err != nil {
			return nil, fmt.Errorf("lineage: %s of %s: %w", field, e.Key(), err)
		}
		for _, k := range keys {
			key, err := record.KeyOf(k)
			if err != nil {
				return nil, fmt.Errorf("lineage: %s of %s: %w", field, e.Key(), err)
			}
			refs = append(refs, ref{e.Key(), key})
		}
	}
	// family.has searches by bisection, and equal compares lists in order.
	slices.SortFunc(refs, ref.compare)
	return refs, nil
}

func (f family) equal(g family) bool {
	return slices.Equal(f.members, g.members) && slices.Equal(f.waiting, g.waiting) && slices.Equal(f.targets, g.targets)
}
