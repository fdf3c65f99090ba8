package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Update is a data update: all records of a kind of one version are brought up through a
// lens, where they are, when an operator asks for it.
type Update struct {
	Name        string
	Kind        string
	Version     string // of the API
	Lens        string // path of the lens file
	Description string
}

// updates reads the data updates. versions are the API versions of the databases.
func (r *reader) updates(n node, versions []string) []Update {
	var updates []Update
	items := r.list(n)
	for _, item := range items {
		m := r.mapping(item, "name", "kind", "version", "lens", "description")
		u := Update{
			Name:    r.required(m["name"], "a name for operators"),
			Kind:    r.collection(m["kind"]),
			Version: r.required(m["version"], "an API version of dbs"),
			Lens:    filepath.FromSlash(r.required(m["lens"], "the path of a lens file")),
		}
		u.Description, _ = r.text(m["description"])
		if !slices.Contains(versions, u.Version) {
			r.fail(m["version"], u.Version, "want one of "+strings.Join(versions, ", "))
		}
		for i, other := range updates {
			if other.Name == u.Name {
				r.fail(m["name"], u.Name, fmt.Sprintf("%s in line %d has it already, want each name once", items[i].key, items[i].line))
			}
		}
		updates = append(updates, u)
	}
	return updates
}
