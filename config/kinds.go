package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// kinds reads the fixed-name kinds. versions are the API versions of the databases.
func (r *reader) kinds(n node, versions []string) []Kind {
	var kinds []Kind
	items := r.list(n)
	for _, item := range items {
		m := r.mapping(item, "from", "to", "versions", "lens", "indexes", "fence", "discontinued")
		k := Kind{
			From:         r.collection(m["from"]),
			Fence:        r.choice(m["fence"], "view", "validator", "writeBlock", "role"),
			Discontinued: r.flag(m["discontinued"], false),
		}
		// The allowed keys depend on the number of versions.
		switch {
		case len(versions) == 1:
			r.absent(m, "there is one version, whose collections are moved as they are", "to", "versions", "lens", "indexes", "discontinued")
		case k.Discontinued:
			r.absent(m, "the kind is discontinued", "to", "lens", "indexes")
			k.Older, k.Newer = r.pair(m["versions"], versions)
		default:
			k.To = r.collection(m["to"])
			k.Indexes = r.indexes(m["indexes"])
			k.Lens = filepath.FromSlash(r.required(m["lens"], "the path of a lens file"))
			k.Older, k.Newer = r.pair(m["versions"], versions)
		}
		// A collection may appear once for each pair of versions.
		for i, other := range kinds {
			if other.Older != k.Older {
				continue
			}
			if other.From == k.From {
				r.fail(m["from"], k.From, fmt.Sprintf("%s in line %d has it already, want each collection once", items[i].key, items[i].line))
			}
			if other.To == k.To && k.To != "" {
				r.fail(m["to"], k.To, fmt.Sprintf("%s in line %d has it already, want each collection once", items[i].key, items[i].line))
			}
		}
		kinds = append(kinds, k)
	}
	return kinds
}

func (r *reader) absent(m map[string]node, why string, keys ...string) {
	for _, key := range keys {
		if m[key].value != nil {
			r.fail(m[key], "", "want no such key: "+why)
		}
	}
}

// pair reads the two versions that a kind is transformed between. With only two versions, the file
// may leave them out.
func (r *reader) pair(n node, versions []string) (older, newer string) {
	if n.value == nil && len(versions) == 2 {
		return versions[0], versions[1]
	}
	if len(versions) < 2 {
		return "", "" // dbs has failed already
	}
	want := fmt.Sprintf("want two versions that follow each other in dbs, such as [%s, %s]", versions[0], versions[1])
	items := r.list(n)
	var named []string
	for _, item := range items {
		named = append(named, r.required(item, "a version"))
	}
	if len(named) != 2 {
		if n.value == nil {
			want = "missing, " + want
		}
		r.fail(n, strings.Join(named, ", "), want)
		return "", ""
	}
	// A lens leads from one version to the next, and never further.
	if i := slices.Index(versions, named[0]); i < 0 || i+1 >= len(versions) || versions[i+1] != named[1] {
		r.fail(n, strings.Join(named, ", "), want)
	}
	return named[0], named[1]
}

// Update is a data update. It transforms all records of a kind of one version in place, through a
// lens, when an operator requests it, or by itself.
type Update struct {
	Name    string
	Kind    string
	Version string // API version
	Lens    string // path of the lens file
	// References chooses the keys that the lens's references hold afterwards: new, old or both.
	// Empty: the lens has no references.
	References string
	// Follow makes it begin by itself after each switch of the other deployment to these keys.
	Follow      bool
	Description string
}

// updates reads the data updates. versions are the API versions of the databases.
func (r *reader) updates(n node, versions []string) []Update {
	var updates []Update
	items := r.list(n)
	for _, item := range items {
		m := r.mapping(item, "name", "kind", "version", "lens", "references", "follow", "description")
		u := Update{
			Name:    r.required(m["name"], "a name for operators"),
			Kind:    r.collection(m["kind"]),
			Version: r.required(m["version"], "an API version of dbs"),
			Lens:    filepath.FromSlash(r.required(m["lens"], "the path of a lens file")),
		}
		u.References = r.choice(m["references"], "new", "old", "both")
		u.Follow = r.flag(m["follow"], false)
		// No switch makes both keys right, or leaves records without references outdated.
		if u.Follow && u.References != "new" && u.References != "old" {
			r.fail(m["follow"], "", "want references: new or old: only such an update can follow a switch by itself")
		}
		u.Description, _ = r.text(m["description"])
		// An update works in place, so its version must be served here.
		if !slices.Contains(versions, u.Version) {
			r.fail(m["version"], u.Version, "want one of "+strings.Join(versions, ", "))
		}
		// Operators start an update by its name.
		for i, other := range updates {
			if other.Name == u.Name {
				r.fail(m["name"], u.Name, fmt.Sprintf("%s in line %d has it already, want each name once", items[i].key, items[i].line))
			}
		}
		updates = append(updates, u)
	}
	return updates
}
