package transform

import (
	"errors"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"

	"dbcontroller.dev/record"
)

// lineagePrefix is the prefix of the hidden kinds that hold lineage.
const lineagePrefix = "dbc_lineage."

// LineageKind returns the kind that holds the lineage of a spec between two versions, in both
// directions. The kind is managed and stands next to the target's kinds. The switch fences it
// together with them. A version has a separate lineage kind for each version that it came from or
// goes to, because each relates other groups and records.
func LineageKind(spec, older, newer string) string {
	return lineagePrefix + url.QueryEscape(spec) + "." + older + "-" + newer
}

// IsLineage reports whether a kind holds lineage and not records of the service.
func IsLineage(kind string) bool { return strings.HasPrefix(kind, lineagePrefix) }

// byContent reports whether any group of a spec follows from a record's content. Then all its
// groups go through lineage, in both directions.
func (sp Spec) byContent() bool {
	for _, side := range []Side{sp.Old, sp.New} {
		for _, k := range side.Kinds {
			if k.Content != nil {
				return true
			}
		}
	}
	return false
}

// checkByContent refuses declarations that have no meaning for groups by content.
func checkByContent(sp Spec) error {
	for _, part := range []struct {
		name string
		side Side
	}{{"Old", sp.Old}, {"New", sp.New}} {
		if part.side.Anchor != nil {
			return fmt.Errorf("spec %s: groups by content have no Anchor, and %s has one: remove it", sp.Name, part.name)
		}
		for _, k := range part.side.Kinds {
			if k.Content != nil && (k.GroupOf != nil || k.Select != nil) {
				return fmt.Errorf("spec %s: kind %s has both Content and GroupOf or Select: its groups follow from one or the other", sp.Name, k.Name)
			}
			// A service's kind with this prefix would be hidden, and could clash with lineage.
			if IsLineage(k.Name) {
				return fmt.Errorf("spec %s: kind %s: names that begin with %s are taken", sp.Name, k.Name, lineagePrefix)
			}
		}
	}
	return nil
}

// ref identifies a record.
type ref struct {
	kind string
	key  record.Key
}

func (r ref) compare(s ref) int {
	if c := strings.Compare(r.kind, s.kind); c != 0 {
		return c
	}
	return strings.Compare(string(r.key), string(s.key))
}

// unit is one record of the source or the target, named by the GroupID of a spec by content. Its
// groups are known only from lineage and the record itself. Its name is a byte for the side, the
// kind, a zero byte and the key.
type unit struct {
	ref
	target bool
}

const (
	sourceUnit = 's'
	targetUnit = 't'
)

func (u unit) id(spec int) GroupID {
	side := byte(sourceUnit)
	if u.target {
		side = targetUnit
	}
	// A kind contains no zero byte, so the name can be split again.
	b := make([]byte, 0, 2+len(u.kind)+len(u.key))
	b = append(append(append(b, side), u.kind...), 0)
	return GroupID{Spec: spec, Name: string(append(b, u.key...))}
}

func unitOf(name string) (unit, bool) {
	if name == "" || name[0] != sourceUnit && name[0] != targetUnit {
		return unit{}, false
	}
	kind, key, ok := strings.Cut(name[1:], "\x00")
	return unit{ref: ref{kind, record.Key(key)}, target: name[0] == targetUnit}, ok
}

// unitSelector returns a selector for the record of a unit, or nil if the unit belongs to the other
// side.
func unitSelector(name string, target bool) []record.Selector {
	u, ok := unitOf(name)
	if !ok || u.target != target {
		return nil
	}
	return []record.Selector{{Kind: u.kind, Key: u.key}}
}

var errNoGroup = errors.New("its content names no group")

// contentOf returns the group of a live record of a spec by content.
func contentOf(k GroupedKind, r record.Record) (group string, err error) {
	// Content and GroupOf are the author's code: a panic parks one record, and Conceal keeps its
	// data out of the error.
	defer func() {
		if p := recover(); p != nil {
			group, err = "", panicked(p, debug.Stack())
		}
		if err != nil {
			err = fmt.Errorf("group of %s %s: %w", r.Kind, r.Key, Conceal(err, Group{Records: []record.Record{r}}))
		}
	}()
	switch {
	case k.Content != nil:
		group, err = k.Content(r)
	case k.GroupOf != nil:
		group, err = k.GroupOf(r.Key)
	default:
		group = string(r.Key)
	}
	// Reject "": an empty group in lineage means that a record has none.
	if err == nil && group == "" {
		err = errNoGroup
	}
	return group, err
}

// ShowGroup returns the name of a group in readable form. If the name is the bytes of a record.Key,
// it returns the text of that key.
func ShowGroup(name string) string {
	if n, ok := record.Key(name).Name(); ok && string(record.StringKey(n)) == name {
		return n
	}
	// A key starts with a BSON type byte. Names that authors make up do not.
	if v := record.Key(name).Value(); v.Validate() == nil {
		if key, err := record.KeyOf(v); err == nil && string(key) == name {
			return key.String()
		}
	}
	return fmt.Sprintf("%q", name)
}
