package transform

// KeyMap maps the names of one kind between two versions of another service, as far as one name
// follows from the other. It comes from a lens (lens.Lens.KeyMap) or from Go functions.
type KeyMap struct {
	// New maps a name of the old version to the new version, and Old maps a name of the new version
	// to the old one. Each returns an error for a name that is impossible in its input version.
	New, Old func(name string) (string, error)
}

// Others returns the other names of a resource: its new name if name is an old one, and its old
// name if name is a new one.
func (m KeyMap) Others(name string) []string {
	var out []string
	for _, f := range []func(string) (string, error){m.New, m.Old} {
		if other, err := f(name); err == nil && other != name {
			out = append(out, other)
		}
	}
	return out
}
