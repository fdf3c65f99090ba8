package apiversion

// Checked checks a resource that a test declares, as NewTable does.
func Checked(r Resource) (*Resource, error) { return r.checked() }

// Renamed replaces a name in a message.
func Renamed(text, from, to string) string { return renamed(text, from, to) }

// Reverse exchanges the versions of a resource, so that a test tries both directions of it.
func (r *Resource) Reverse() *Resource { return r.reverse() }
