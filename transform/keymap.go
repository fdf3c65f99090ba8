package transform

// KeyMap is how the names of one kind change between two versions of another service, as far
// as they follow from each other: that of a lens (lens.Lens.KeyMap), or functions in Go.
type KeyMap struct {
	// New returns the new version's name of what the old one calls name, Old the other way
	// round. An error is that of a name that the version which is asked about cannot have.
	New, Old func(name string) (string, error)
}

// Others returns the names that a resource has besides name: that of the new version, if name
// is one of the old one, and the other way round.
func (m KeyMap) Others(name string) []string {
	var out []string
	for _, f := range []func(string) (string, error){m.New, m.Old} {
		if other, err := f(name); err == nil && other != name {
			out = append(out, other)
		}
	}
	return out
}
