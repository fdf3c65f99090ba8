package verify

import "dbcontroller.dev/transform"

// Waived is what somebody let a switch go on without. Where it differs that is known, and is
// counted apart from what nobody has looked at.
type Waived struct {
	Groups  map[transform.GroupID]bool
	Orphans map[Name]bool
	// Kinds are those of which more was waived than Groups lists. A group of them counts as
	// waived if it cannot be transformed; any other one, which may be missing for another
	// reason, as different.
	Kinds map[string]bool
}

// Name is what people find a group or a record by.
type Name struct{ Kind, Key string }

func (w Waived) group(d transform.Difference, name Name) bool {
	return w.Groups[d.ID] || d.Failed && w.Kinds[name.Kind]
}

// note counts what differs and is waived.
func (r *Report) note(name string) {
	r.Waived++
	if len(r.WaivedExamples) < mostExamples {
		r.WaivedExamples = append(r.WaivedExamples, name)
	}
}
