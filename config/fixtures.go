package config

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Fixtures are the records of one kind that a version of a service starts with.
type Fixtures struct {
	Kind string
	File string // path; one document in extended JSON per line
}

func (r *reader) fixtures(n node) []Fixtures {
	var out []Fixtures
	items := r.list(n)
	for _, item := range items {
		m := r.mapping(item, "kind", "file")
		f := Fixtures{Kind: r.required(m["kind"], "a kind of the service"), File: filepath.FromSlash(r.required(m["file"], "the path of a file with a document in each line"))}
		// Two files for one kind would both claim to be complete.
		if i := slices.IndexFunc(out, func(o Fixtures) bool { return o.Kind == f.Kind }); i >= 0 && f.Kind != "" {
			r.fail(m["kind"], shown(f.Kind), fmt.Sprintf("%s in line %d has it already, want one file for each kind", items[i].key, items[i].line))
		}
		if f.File != "" && !filepath.IsAbs(f.File) {
			f.File = filepath.Join(r.folder, f.File)
		}
		out = append(out, f)
	}
	return out
}

// onePlace refuses fixtures in two entries of one version, because they belong to the version.
func (r *reader) onePlace(n node, dbs []DB) {
	items := r.list(n)
	for i, db := range dbs {
		// Each place of a version would load them again.
		for j, other := range dbs[:i] {
			if len(db.Fixtures) > 0 && len(other.Fixtures) > 0 && db.APIVersion == other.APIVersion {
				r.fail(items[i], "", fmt.Sprintf("%s in line %d has the fixtures of %s, want them in one entry", items[j].key, items[j].line, db.APIVersion))
			}
		}
	}
}
