package apiversion

// Checked checks a resource that a test declares, as NewTable does.
func Checked(r Resource) (*Resource, error) { return r.checked() }

// Reverse exchanges the versions of a resource, so that a test tries both directions of it.
func (r *Resource) Reverse() *Resource { return r.reverse() }
