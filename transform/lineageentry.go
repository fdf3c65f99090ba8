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

// The three kinds of entries of a lineage kind, told apart by how their keys begin. The
// form of each is in docs/formats.md.

// descent is what is known of a source record: the group whose part it is in the target,
// and the one that it waits for, which could not be migrated with it.
type descent struct {
	group, waits string
}

// family is what is known of a group: the source records that its records in the target
// were made of, those that wait to become part of it, and the target records. Each list
// is sorted.
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

// spell writes the name of a group or a key as text, so that people can read it where
// that is possible and no two are the same: a string key as its name, other text as it
// is, anything else in hexadecimal.
func spell(s string) string {
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

// doc is the entry of a member; nil, which is a tombstone, when nothing is known of it.
func (d descent) doc(r ref) bson.Raw {
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

// targetDoc is the entry of a target record.
func targetDoc(r ref, group string) bson.Raw {
	return closed(bsoncore.AppendStringElement(entry(targetKey(r)), fieldGroup, spell(group)))
}

// doc is the entry of a group; nil when nothing of it is left.
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

func closed(b []byte) bson.Raw {
	b = append(b, 0)
	return bson.Raw(bsoncore.UpdateLength(b, 0, int32(len(b))))
}

// appendRefs writes records by kind, {kind: [key, ...]}, since a group has few kinds.
func appendRefs(b []byte, name string, refs []ref) []byte {
	at, b := bsoncore.AppendDocumentElementStart(b, name)
	for len(refs) > 0 {
		kind := refs[0].kind
		array, next := bsoncore.AppendArrayElementStart(b, kind)
		b = next
		n := 0
		for ; n < len(refs) && refs[n].kind == kind; n++ {
			id := refs[n].key.Value()
			b = bsoncore.AppendValueElement(b, fmt.Sprint(n), bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Value})
		}
		refs = refs[n:]
		b, _ = bsoncore.AppendArrayEnd(b, array) // fails only on a length that is not there
	}
	b, _ = bsoncore.AppendDocumentEnd(b, at)
	return b
}

// readDescent and the others read an entry; nil, of an absent one, is the zero value.
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
	slices.SortFunc(refs, ref.compare)
	return refs, nil
}

func (f family) equal(g family) bool {
	return slices.Equal(f.members, g.members) && slices.Equal(f.waiting, g.waiting) && slices.Equal(f.targets, g.targets)
}
